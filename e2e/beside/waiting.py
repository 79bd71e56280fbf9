"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT_SECONDS = 60.0
"""Long enough for a busy machine: starting the operator alone takes a second of CPU time."""

POLL_SECONDS = 0.01


class NotInTime(AssertionError):  # noqa: N818 - says what happened
    """It did not become true; the text says what was waited for."""


def wait_for(
    probe: Callable[[], Any], what: str, *, seconds: float = WAIT_SECONDS, poll_seconds: float = POLL_SECONDS
) -> Any:
    """Return the probe's first true value.

    Raises:
        NotInTime: None came in time.
    """
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        if time.monotonic() > deadline:
            raise NotInTime(f"no {what} within {seconds:g} s")
        time.sleep(poll_seconds)
    return value
