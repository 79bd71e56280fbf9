"""Something that is done again and again beside a test."""

from __future__ import annotations

import abc
import threading
from typing import Self


class InBackground(abc.ABC):
    """Takes steps in a thread of its own for as long as it is entered; a step that has begun is finished.

    Args:
        pause_seconds: Between two steps.
    """

    def __init__(self, *, pause_seconds: float = 0.0) -> None:
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @abc.abstractmethod
    def step(self) -> None:
        """Do it once; what it raises would end the thread unseen, so it keeps what goes wrong."""

    def _run(self) -> None:
        while not self._stop.wait(self._pause_seconds):
            self.step()
