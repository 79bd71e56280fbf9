"""What an answer used, seen while it passes.

Theory of operation. The watch gets the payload of a response, without chunk frames, in whatever pieces it comes, and
gives back what the client is to have: the same bytes, except for the one event that the limiter asked for itself. It
never writes an event anew.

An event stream is nearly all alike: one token for each event. Such events say so in a few bytes that cannot occur
inside of a JSON text, where their quotes would be escaped: `"finish_reason":null`, for one. So a read that ends where
an event ends, and whose events all have the mark, is counted and passed on as it is. Only in other reads every event is
looked at, and only events without the mark are decoded.

| state | a read comes | next |
|---|---|---|
| between events | whole events, all with the mark | between events; counted, passed on |
| between events, or within one | anything else | every event that is complete now is looked at; a rest is kept |
| within an event | the rest grows too large | its beginning is dropped; its end is still looked at |

The event to be removed is held back until it is known: one that shows an entry in `choices` is not it. It is small, so
of other events no more than `HOLD_LIMIT_BYTES` are ever held back.

An answer that is no stream keeps its last bytes, since both engines write the usage behind the text.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.limiter.report import Report, decode
from penstock.limiter.wish import Kind

EVENT_LIMIT_BYTES = 64 * 1024
HOLD_LIMIT_BYTES = 8 * 1024
TAIL_BYTES = 8 * 1024

MARKS: Final[dict[Kind, bytes]] = {
    Kind.CHAT: b'"finish_reason":null',
    Kind.COMPLETIONS: b'"finish_reason":null',
    Kind.NATIVE: b'"stop":false',
    Kind.MESSAGES: b'"type":"content_block_delta"',
    Kind.RESPONSES: b'"type":"response.output_text.delta"',
}
"""What an event with a token has, and no event that says more."""

_NO_MARK: Final = b'"finish_reason":null'
_END: Final = b"\n\n"
_EVENT_END: Final = re.compile(rb"\n\n|\r\n\r\n")
_AN_ENTRY: Final = re.compile(rb'"choices"[ \t]*:[ \t]*\[[ \t]*\{')


class UsageWatch(Report):
    """Watches one response's payload.

    Attributes:
        removed: Events that were taken out.
    """

    __slots__ = (
        "_begun", "_cut", "_kept", "_mark", "_remove", "_rest", "_sent", "removed",
    )  # fmt: skip

    def __init__(self, kind: Kind, *, stream: bool, remove_usage: bool = False) -> None:
        """Prepare for an answer.

        Args:
            kind: What the request's path does.
            stream: Whether the response is an event stream; its content type says so, not the request.
            remove_usage: Whether the limiter asked for the usage event and the client did not.
        """
        super().__init__(stream=stream)
        self.removed = 0
        self._mark = MARKS.get(kind, _NO_MARK)
        self._remove = remove_usage and stream
        self._begun = False
        """Whether the first event was looked at: in a chat it has the mark and no token."""
        self._rest = b""
        """The event that is not complete, as far as it is kept."""
        self._sent = 0
        """How much of the rest the client has."""
        self._cut = False
        """Whether the rest's beginning was dropped."""
        self._kept = 0

    @property
    def removes(self) -> bool:
        """Whether it may take something out."""
        return self._remove

    @property
    def lane_mark(self) -> bytes | None:
        """What an event with a token has, while such events need not come here if `chunks` is counted; else None."""
        return self._mark if self._begun and not self._rest else None

    @property
    def at_boundary(self) -> bool:
        """Whether a stream stands between two events, as the client sees it."""
        return not self._sent and not self._cut

    def feed(self, data: bytes) -> bytes:
        """Take one read of payload and return what the client gets now."""
        if not self._stream:
            self._keep(data)
            return data
        if self._begun and not self._rest and data.endswith(_END) and b"\r" not in data:
            events = data.split(_END)
            events.pop()
            mark = self._mark
            if all(mark in event for event in events):
                self.chunks += len(events)
                return data
        return self._scan(data)

    def end(self) -> bytes:
        """Take note that the payload is over and return what was held back.

        What the engine did not complete is no usage event, so the client gets it.
        """
        rest, sent = self._rest, self._sent
        self._rest, self._sent = b"", 0
        if not self._stream:
            self._look_at_whole(rest)
            return b""
        if rest and self._is_usage_event(rest) and not sent:
            self.removed += 1
            return b""
        return rest[sent:] if self._remove else b""

    # ---- streams

    def _scan(self, data: bytes) -> bytes:
        """Cut a read into events, look at them, and keep what is not complete."""
        old = len(self._rest)
        buffer = self._rest + data if old else data
        pieces: list[bytes] = []
        begin, search = 0, max(0, old - 3)
        while (found := _EVENT_END.search(buffer, search)) is not None:
            end = found.end()
            event = buffer[begin:end]
            if self._is_usage_event(event) and not self._sent and not self._cut:
                self.removed += 1
            else:
                pieces.append(event[self._sent :])
            self._sent, self._cut = 0, False
            begin = search = end
        self._rest = buffer[begin:]
        if self._rest:
            pieces.append(self._passed_on())
        return b"".join(pieces) if self._remove else data

    def _passed_on(self) -> bytes:
        """Return what the client gets of the event that is not complete, and bound what is kept of it."""
        rest, piece = self._rest, b""
        if not self._remove or self._sent or len(rest) > HOLD_LIMIT_BYTES or _AN_ENTRY.search(rest):
            piece, self._sent = rest[self._sent :], len(rest)
        if len(rest) > EVENT_LIMIT_BYTES:
            self._rest = rest[-TAIL_BYTES:]
            self._sent, self._cut = len(self._rest), True
        return piece

    def _is_usage_event(self, event: bytes) -> bool:
        """Look at one event; say whether it is the one that was asked for on the client's behalf."""
        if self._cut:
            self.take_tail(event)
            return False
        if self._begun and self._mark in event:
            self.chunks += 1
            return False
        payload = _payload(event)
        if payload is None:
            return False
        seen = decode(payload)
        if seen is None:
            return False
        self._begun = True
        self.take(seen)
        found = self._remove and seen.choices == [] and seen.usage is not None and not seen.error and not self.removed
        return found and _AN_ENTRY.search(event) is None  # as of an event that comes in pieces

    # ---- whole answers

    def _keep(self, data: bytes) -> None:
        self._kept += len(data)
        self._rest += data
        if len(self._rest) > EVENT_LIMIT_BYTES:
            self._rest = self._rest[-TAIL_BYTES:]

    def _look_at_whole(self, rest: bytes) -> None:
        if len(rest) < self._kept:
            self.take_tail(rest)
            return
        seen = decode(rest)
        if seen is None:
            self.take_tail(rest)
        else:
            self.take(seen)


def _payload(event: bytes) -> bytes | None:
    """Return an event's data; None for a comment, for the stream's end mark and for an event without data."""
    if event.startswith(b"data: ") and event.count(b"\n") == 2:
        data = event[6:].rstrip()
    else:
        lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
        data = b"\n".join(lines)
    return data if data.startswith(b"{") else None
