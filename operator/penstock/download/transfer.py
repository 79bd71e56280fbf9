"""The files of one download: several at a time, each tried again after what may pass, each checked before it counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

from penstock.download import checksum
from penstock.download.errors import DownloadError
from penstock.download.failures import Request, explain
from penstock.download.hub import Hub, Stopped
from penstock.download.listing import Listing, RemoteFile
from penstock.download.progress import Progress, Say
from penstock.download.store import Store

FILES_AT_A_TIME = 4
PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""Between the tries of one call. Few and short, since kubelet starts a failed container again, with longer pauses, and
only a container that has ended tells its reason in the pod's status."""

Sleep = Callable[[float], None]
T = TypeVar("T")


@dataclass(kw_only=True)
class Transfer:
    """One download of one listing into one store."""

    hub: Hub
    store: Store
    request: Request
    say: Say
    sleep: Sleep = time.sleep
    stop: Event = field(default_factory=Event)

    def listing(self) -> Listing:
        """Ask the hub what the repository holds.

        Raises:
            DownloadError: It does not tell, after all tries.
        """
        return self._tried(lambda: self.hub.listing(self.request.repository, self.request.revision), lambda: 0)

    def files(self, commit: str, files: Sequence[RemoteFile], progress: Progress) -> None:
        """Download what is missing of the files.

        Raises:
            DownloadError: One of them cannot be had; what the others have received stays.
        """
        with ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="download") as pool:
            running = [pool.submit(self._file, commit, file, progress) for file in files if not self.store.has(file)]
            wait(running, return_when=FIRST_EXCEPTION)
            self.stop.set()
            pool.shutdown(cancel_futures=True)
        errors = [one.exception() for one in running if one.done() and not one.cancelled()]
        causes = [error for error in errors if error is not None and not isinstance(error, Stopped)]
        if causes:
            raise causes[0]

    def _file(self, commit: str, file: RemoteFile, progress: Progress) -> None:
        path = self.store.incomplete(file)
        path.parent.mkdir(parents=True, exist_ok=True)

        def one_try() -> None:
            if path.exists() and path.stat().st_size > file.size:
                path.unlink()
            self.hub.fetch(self.request.repository, commit, file, into=path, progress=progress, stop=self.stop)
            try:
                checksum.verify(path, file)
            except DownloadError:
                progress.add(-path.stat().st_size)
                path.unlink()
                raise
            self.store.accept(file)

        self._tried(one_try, lambda: self.store.present_bytes(file))

    def _tried(self, call: Callable[[], T], received: Callable[[], int]) -> T:
        """Return what the call returns, in at most four tries without progress."""
        pauses = list(PAUSES_SECONDS)
        before = received()
        while True:
            try:
                return call()
            except Stopped:
                raise
            except Exception as error:
                failure = explain(error, self.request)
                if failure is None:
                    raise
                now = received()
                if now > before and not failure.damaged:
                    pauses = list(PAUSES_SECONDS)
                before = now
                if failure.permanent or not pauses or self.stop.is_set():
                    raise failure from error
            pause = max(pauses.pop(0), failure.retry_after_seconds)
            self.say(f"{failure}; trying again in {pause:g} s")
            self.sleep(pause)
