"""The process: environment in, model in the volume, exit status out, and the reason for a failure as the last line."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sized
from pathlib import Path
from types import FrameType

from penstock.api.download import DownloadSettings
from penstock.api.errors import InvalidSettings
from penstock.download import lock
from penstock.download.errors import DownloadError
from penstock.download.failures import Request, explain
from penstock.download.hub import Hub
from penstock.download.listing import Listing, RemoteFile
from penstock.download.progress import Progress, Say, size
from penstock.download.selection import select
from penstock.download.store import Record, Store
from penstock.download.transfer import Sleep, Transfer

EXIT_TRANSIENT = 1
"""The same may work later: the next start goes on where this one stopped."""

EXIT_PERMANENT = 2
"""Nothing but a change can help, of the spec, the token or the volume."""

GROUP_WRITABLE = 0o002
"""The umask: replicas of another engine may run as another user of the same group."""


def main(environ: Mapping[str, str]) -> int:
    """Run as a process of its own: SIGTERM ends it at once, and what has been downloaded stays."""
    os.umask(GROUP_WRITABLE)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    return run(environ, say=_print)


def run(environ: Mapping[str, str], *, say: Say, sleep: Sleep = time.sleep) -> int:
    """Bring the model and return the exit status; what goes wrong is said in one last line."""
    try:
        settings = DownloadSettings.from_env(environ)
    except InvalidSettings as error:
        say(str(error))
        return EXIT_PERMANENT
    request = _request(settings)
    try:
        _bring(settings, request, say, sleep)
    except (DownloadError, OSError) as error:
        failure = explain(error, request)
        say(str(failure))
        return EXIT_PERMANENT if failure is not None and failure.permanent else EXIT_TRANSIENT
    return 0


def _request(settings: DownloadSettings) -> Request:
    return Request(
        endpoint=settings.endpoint.rstrip("/"),
        repository=settings.repository,
        revision=settings.revision,
        with_token=settings.token_path is not None,
        volume=settings.volume,
    )


def _bring(settings: DownloadSettings, request: Request, say: Say, sleep: Sleep) -> None:
    store = Store(Path(settings.volume), settings.folder)
    if _found(store, say):
        return
    store.prepare()

    def waiting(holder: str) -> None:
        say(f"waiting for {holder}, which downloads {request}")

    with lock.held(store.lock_path, holder=socket.gethostname(), waiting=waiting):
        if _found(store, say):  # the one that was waited for has brought it
            return
        hub = Hub(endpoint=request.endpoint, token=_token(settings))
        _download(settings, Transfer(hub=hub, store=store, request=request, say=say, sleep=sleep))


def _found(store: Store, say: Say) -> bool:
    record = store.complete()
    if record is not None:
        say(
            f"{record.repository} is there: commit {record.commit} of revision {record.revision}, "
            f"{_count(record.sizes)}, {size(record.bytes)}"
        )
    return record is not None


def _token(settings: DownloadSettings) -> str | None:
    if settings.token_path is None:
        return None
    try:
        token = Path(settings.token_path).read_text().strip()
    except OSError as error:
        raise DownloadError(f"the token's Secret cannot be read: {error.strerror}", permanent=True) from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DownloadError("the token's Secret holds no token: write it as one line without blanks", permanent=True)
    return token


def _download(settings: DownloadSettings, transfer: Transfer) -> None:
    request, store, say = transfer.request, transfer.store, transfer.say
    listing = transfer.listing()
    files = select(listing.files, file=settings.file, where=str(request))
    if store.begin():
        say(f"the model at {store.published} is damaged: what is right in it is kept, the rest comes anew")
    store.keep_only(files)
    missing, total = store.missing_bytes(files), sum(file.size for file in files)
    free = store.free_bytes()
    if missing > free:
        raise DownloadError(
            f"{request} needs {size(missing)}, the volume at {settings.volume} has {size(free)} free: make it larger",
            permanent=True,
        )
    say(f"downloading {request}, commit {listing.commit}: {_count(files)}, {size(missing)} of {size(total)} missing")
    started = time.monotonic()
    progress = Progress(total_bytes=total, present_bytes=total - missing)
    with progress.told(say):
        transfer.files(listing.commit, files, progress)
    store.publish(_record(settings, listing, files))
    seconds = time.monotonic() - started
    say(f"downloaded {size(progress.received_bytes)} in {seconds:.0f} s, all checksums are right: {store.published}")


def _record(settings: DownloadSettings, listing: Listing, files: tuple[RemoteFile, ...]) -> Record:
    return Record(
        repository=settings.repository,
        revision=settings.revision,
        commit=listing.commit,
        sizes={file.path: file.size for file in files},
    )


def _count(files: Sized) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a signal's handler
    os.write(2, b"told to stop: what has been downloaded stays and is gone on with\n")
    # Not sys.exit: that would wait for the threads, and nothing here has to be put away. The kernel frees the lock.
    os._exit(128 + number)
