"""Where the shared store is: in the policy, or in a mounted file when the URL holds a password.

The file is a key of a mounted Secret; it is read again whenever it changes, so a password may be changed while the
replica runs. Only `shown` is ever told to anybody. A file that cannot be used leaves the last good URL in force: a
store that was reached with it is still the one that the other replicas count in.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

URL_LIMIT_BYTES = 4096
DEFAULT_PORT = 6379
SCHEMES = ("redis", "rediss")

Stamp = tuple[int, int, int]


class UrlError(ValueError):
    """A text that is no URL of a store; the message says why, and never shows the text."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store.

    Attributes:
        secret: The whole URL, with the password.
        shown: The same for people, without user and password.
    """

    secret: str = field(repr=False)
    shown: str

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        """Read a URL.

        Raises:
            UrlError: it is none.
        """
        try:
            found = urlsplit(text)
            host, port = found.hostname, found.port or DEFAULT_PORT
        except ValueError:
            raise UrlError("it is no URL, or its port is no number") from None
        if found.scheme not in SCHEMES or not host:
            raise UrlError("it must be redis://user:password@host:port/database or rediss://...")
        if found.query or found.fragment:
            raise UrlError("it ends in `?` or `#` and something; write such characters in a password as %3F and %23")
        if not (found.path in {"", "/"} or found.path[1:].isdigit()):
            raise UrlError("its path must be the number of a database, such as /0")
        return cls(text, f"{found.scheme}://{f'[{host}]' if ':' in host else host}:{port}{found.path or '/0'}")


class UrlFile:
    """The mounted file.

    Attributes:
        url: What is in force; None before the first good one.
        problem: Why the file's present contents are not in force; None when they are.
    """

    def __init__(self, path: Path) -> None:
        self.url: StoreUrl | None = None
        self.problem: str | None = None
        self._path = path
        self._stamp: Stamp | None = None

    def refresh(self) -> bool:
        """Read the file if it has changed; return whether another URL is in force."""
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return False
            if status.st_size > URL_LIMIT_BYTES:
                raise UrlError(f"it is larger than {URL_LIMIT_BYTES} bytes")
            url = StoreUrl.parse(self._path.read_text(encoding="utf-8").strip())
        except UnicodeDecodeError:
            self._fault("it is no text")
            return False
        except (OSError, UrlError) as error:
            self._fault(str(error))
            return False
        self._stamp = stamp
        self.problem = None
        changed, self.url = url != self.url, url
        return changed

    def _fault(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            logger.error("the shared store's URL is not taken over file=%s problem=%r", self._path, problem)
