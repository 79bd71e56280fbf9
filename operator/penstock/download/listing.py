"""What a repository holds at one commit, as far as a download needs to know it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a repository.

    Attributes:
        path: Its path in the repository.
        size: Its size in bytes.
        sha256: SHA-256 of its contents; None for a small file that the repository keeps in git itself.
        git_sha1: Git's name of its contents, which counts where `sha256` is None.
    """

    path: str
    size: int
    sha256: str | None
    git_sha1: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A repository at the commit that a revision stands for."""

    commit: str
    files: tuple[RemoteFile, ...]


def is_safe(path: str) -> bool:
    """Tell whether a path from a hub stays inside the folder it is written to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path and "\\" not in path
