"""API keys: a mounted folder with one file per tenant and one key per line.

Keys are kept as their BLAKE2b only, so neither a dump of the process nor a mistake in a message can show one. A
caller's key is hashed and looked up by that; how long it takes tells nothing about any stored key, because nobody can
choose the hash of what they send.

The folder is a mounted Secret, so a change arrives as one swapped symbolic link, and between two looks any number of
files may have changed. It is read as a whole or not at all: a folder with a fault never takes effect, and the keys of
the last good one stay in force. A key in two files is such a fault, since it would depend on the order of reading who
its caller is; the files are named, the key is not.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from pathlib import Path

from penstock.admission.quotas import UNKNOWN_TENANT

logger = logging.getLogger(__name__)

KEY_LIMIT_BYTES = 4096
FILE_LIMIT_BYTES = 1024 * 1024
DIGEST_BYTES = 32
_KEY = re.compile(rb"[\x21-\x7e]+")
_NOBODY = (b"\0" * DIGEST_BYTES, "")

Stamp = tuple[tuple[str, int, int, int], ...]


class KeysFault(Exception):  # noqa: N818 - a state of the folder, told to people, not an error of the program
    """The folder cannot take effect; the text names files and lines, never keys."""


class KeyFolder:
    """The keys in force and where they come from.

    Attributes:
        problem: Why the folder's present contents are not in force; None when they are.
        loaded: Whether good contents were ever read.
        rejected: How often contents had a fault.
        tenants: How many tenants have a key.
    """

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        self.loaded = False
        self.rejected = 0
        self.tenants = 0
        self._path = path
        self._stamp: Stamp | None = None
        self._owners: dict[bytes, tuple[bytes, str]] = {}

    def refresh(self) -> bool:
        """Read the folder if it has changed; return whether other keys are in force."""
        try:
            stamp = self._find_stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            owners = self._read()
        except (OSError, KeysFault) as error:
            self._stamp = None  # it may be read as it is the next time
            self._fault(str(error))
            return False
        changed = owners != self._owners or not self.loaded
        self._owners = owners
        self.tenants = len({tenant for _, tenant in owners.values()})
        self.problem = None
        self.loaded = True
        return changed

    def tenant(self, key: bytes) -> str | None:
        """Return whose key it is; None when it is nobody's."""
        digest = hashlib.blake2b(key[: KEY_LIMIT_BYTES + 1], digest_size=DIGEST_BYTES).digest()
        stored, tenant = self._owners.get(digest, _NOBODY)
        return tenant if hmac.compare_digest(stored, digest) else None

    def _fault(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        self.rejected += 1
        kept = "the last good keys stay in force" if self.loaded else "no key is known"
        logger.error("keys not taken over problem=%r consequence=%r", problem, kept)

    def _files(self) -> list[Path]:
        """Return the tenants' files; what begins with a dot belongs to the mount."""
        return sorted(path for path in self._path.iterdir() if not path.name.startswith("."))

    def _find_stamp(self) -> Stamp:
        found = []
        for path in self._files():
            status = path.stat()
            found.append((path.name, status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _read(self) -> dict[bytes, tuple[bytes, str]]:
        owners: dict[bytes, tuple[bytes, str]] = {}
        for path in self._files():
            tenant = path.name
            if tenant == UNKNOWN_TENANT:
                raise KeysFault(f"{path}: callers without a known key are called so; give the tenant another name")
            if path.stat().st_size > FILE_LIMIT_BYTES:
                raise KeysFault(
                    f"{path}: the file is larger than {FILE_LIMIT_BYTES // 1024} KiB; it holds one key a line"
                )
            for number, line in enumerate(path.read_bytes().splitlines(), 1):
                key = line.strip()
                if not key:
                    continue
                if not _KEY.fullmatch(key) or len(key) > KEY_LIMIT_BYTES:
                    raise KeysFault(f"{path}: line {number} is no key: printable ASCII characters without blanks")
                digest = hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()
                other = owners.setdefault(digest, (digest, tenant))[1]
                if other != tenant:
                    raise KeysFault(
                        f"{path}: line {number} is also a key in {other}; give every tenant keys of its own"
                    )
        return owners
