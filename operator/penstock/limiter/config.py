"""The policy file: read at start and again whenever it changes.

The file is a key of a mounted ConfigMap, so a change arrives as a swapped symbolic link: what is compared is the file
the path leads to. A policy that is not valid never takes effect and never ends the process: the last good one stays in
force. Only before the first good one the replica is not ready, because nobody asked for the built-in values.
What was pushed may be in force in the file's place, see `inforce`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from penstock.api.errors import PenstockError
from penstock.api.policy import Policy

logger = logging.getLogger(__name__)

POLICY_INTERVAL_SECONDS = 2.0

Stamp = tuple[int, int, int]


class PolicyFile:
    """The last good policy of the file, and what is wrong with the file now.

    Attributes:
        policy: The last good one; built-in values before.
        problem: Why the file does not count; None when it does.
        loaded: Whether a good policy was ever read.
        unknown_keys: Keys of the file in force that this version does not know.
        rejected: How often a file was not valid.
    """

    def __init__(self, path: Path) -> None:
        self.policy = Policy()
        self.problem: str | None = None
        self.loaded = False
        self.unknown_keys: tuple[str, ...] = ()
        self.rejected = 0
        self._path = path
        self._stamp: Stamp | None = None
        self._read_once = False

    def refresh(self) -> bool:
        """Read the file if it has changed; return whether another policy is in force."""
        stamp = self._find_stamp()
        if self._read_once and stamp == self._stamp:
            return False
        self._read_once = True
        self._stamp = stamp
        try:
            policy, self.unknown_keys = Policy.parse(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, PenstockError) as error:
            self.rejected += 1
            self.problem = f"{self._path}: {error}"
            kept = "the last good policy stays in force" if self.loaded else "built-in values are in force, not ready"
            logger.error("policy not taken over problem=%r consequence=%r", self.problem, kept)
            return False
        if self.unknown_keys:
            logger.warning("policy has unknown keys keys=%r", self.unknown_keys)
        changed = policy != self.policy or not self.loaded
        self.problem = None
        self.loaded = True
        self.policy = policy
        return changed

    def _find_stamp(self) -> Stamp | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
