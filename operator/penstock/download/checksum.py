"""Whether a file is what the hub says it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.download.errors import DownloadError
from penstock.download.listing import RemoteFile

BLOCK_BYTES = 1 << 20


def verify(path: Path, file: RemoteFile) -> None:
    """Read the file and compare it.

    Raises:
        DownloadError: Its size or checksum is another; `damaged` is set.
    """
    size = path.stat().st_size
    if size != file.size:
        raise DownloadError(f"{file.path} arrived with {size} bytes instead of {file.size}", damaged=True)
    if file.sha256 is not None:
        digest, expected, kind = hashlib.sha256(), file.sha256, "SHA-256"
    else:  # git names a file by the SHA-1 of a header and its contents
        digest, expected, kind = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False), file.git_sha1, "git hash"
    with path.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise DownloadError(
            f"{file.path} arrived damaged: its {kind} is {digest.hexdigest()[:12]}…, the hub names {expected[:12]}…",
            damaged=True,
        )
