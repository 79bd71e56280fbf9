"""Whom a request is served for, as those see it who serve it: one connection, or a run that several follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.limiter.refusal import Refused

if TYPE_CHECKING:
    from penstock.limiter.service import Request
    from penstock.limiter.unsent import Data


class Sink(Protocol):
    """Takes an answer's bytes."""

    def write(self, data: Data) -> None:
        """Take more bytes."""

    def abort(self) -> None:
        """End now, in a way that nobody takes for the answer's end."""


class Client(Protocol):
    """Gets the answer to one request."""

    @property
    def request(self) -> Request | None:
        """The request being served; None when none is any more."""
        ...

    @property
    def transport(self) -> Sink:
        """Where the answer is written."""
        ...

    @property
    def stalled(self) -> bool:
        """Whether it reads too slowly at the moment."""
        ...

    def refuse(self, refused: Refused) -> None:
        """Answer with an error; nothing was written before."""

    def finished(self, *, keep_alive: bool) -> None:
        """The answer is written."""

    def break_off(self, *, reset: bool) -> None:
        """The answer ends before it is complete; `reset` says whether an orderly end would look like its end."""
