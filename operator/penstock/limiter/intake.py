"""Bytes from a client that wait to be read: of heads that are not complete, and of requests that came too early.

Requests that arrive while one is served wait here, up to a limit. Beyond it they are dropped, which the connection
must know, because then it cannot go on: `overrun`.

Heads are small. What is larger than `FREE_BYTES` is counted with the memory of bodies, so that many connections with
nearly complete heads cannot take more of it than bodies can.
"""

from __future__ import annotations

from penstock.limiter.bodybudget import BodyBudget
from penstock.limiter.head import RequestHead, early_fault, find_end, parse_request
from penstock.limiter.refusal import Reason, Refused

PIPELINE_LIMIT_BYTES = 64 * 1024
FREE_BYTES = 8 * 1024
EMPTY_LINES_LIMIT = 4  # before one head


class Intake:
    """The unread bytes of one connection.

    Attributes:
        buffer: What waits, only to be looked at.
        overrun: Whether bytes were dropped.
    """

    __slots__ = ("_budget", "_empty_lines", "_held", "_searched", "buffer", "overrun")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._held = 0
        self.buffer = bytearray()
        self._searched = 0
        self._empty_lines = 0
        self.overrun = False

    def add(self, data: bytes) -> None:
        """Keep bytes that are read now.

        Raises:
            Refused: there is no memory for them.
        """
        self.buffer += data
        if len(self.buffer) > FREE_BYTES and not self._hold_memory():
            self.clear()
            raise Refused(Reason.OVERLOADED, "Too many large requests are being read at the moment.")

    def hold(self, data: bytes) -> None:
        """Keep bytes for later, unless that would be too many."""
        if self.overrun:
            return
        self.buffer += data
        size = len(self.buffer)
        if size > PIPELINE_LIMIT_BYTES or (size > FREE_BYTES and not self._hold_memory()):
            self.overrun = True
            self.clear()

    def has_begun(self) -> bool:
        """Skip empty lines (some clients end a body with one line end too many); return whether a head has begun.

        Raises:
            Refused: there are so many that no client does it by mistake.
        """
        buffer = self.buffer
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
            self._empty_lines += 1
            if self._empty_lines > EMPTY_LINES_LIMIT:
                raise Refused(Reason.BAD_REQUEST, "The connection brought empty lines and no HTTP request.")
        return bool(buffer) and buffer != b"\r"

    def take_head(self) -> RequestHead | None:
        """Return the next head, or None when it is not complete.

        Raises:
            Refused: it is not valid, or can never become so.
        """
        buffer = self.buffer
        end = find_end(buffer, self._searched)
        if end < 0:
            early_fault(buffer, self._searched)
            self._searched = len(buffer)
            return None
        head = parse_request(bytes(buffer[:end]))
        del buffer[:end]
        self._searched = self._empty_lines = 0
        if self._held:
            self._hold_memory()
        return head

    def take_all(self) -> bytes:
        """Return everything that is left."""
        data = bytes(self.buffer)
        self.buffer.clear()
        if self._held:
            self._hold_memory()
        return data

    def clear(self) -> None:
        """Throw everything away."""
        self.buffer.clear()
        self._searched = 0
        if self._held:
            self._hold_memory()

    def _hold_memory(self) -> bool:
        """Hold as much memory as the buffer takes; False when there is none."""
        size = len(self.buffer)
        more = (size if size > FREE_BYTES else 0) - self._held
        if more > 0 and not self._budget.take(more):
            return False
        if more < 0:
            self._budget.give(-more)
        self._held += more
        return True
