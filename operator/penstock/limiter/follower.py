"""One of the clients that follow a run: it gets the run's answer at its own pace, in a framing of its own.

    a follower is    | until
    -----------------|----------------------------------------------------------------
    waiting          | the run's head is known: it gets one, written for its connection
    following        | it has everything and the run has ended
    paused           | its connection has room again
    gone, cut off    |

The payload comes from the run's recording: one read of it is one chunk, or goes on without frames where the engine's
answer had none or the client knows none (HTTP/1.0). Whoever pauses while others go on can fall behind what the
recording holds; it is told so, inside the stream where that is possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.limiter.framing import LAST_CHUNK
from penstock.limiter.head import CHUNKED, UNTIL_CLOSE, ResponseHead
from penstock.limiter.headers import client_head, new_id, request_id
from penstock.limiter.refusal import Fields, Reason, Refused, stream_error
from penstock.limiter.service import CONTINUE, Request

if TYPE_CHECKING:
    from penstock.limiter.connection import Connection
    from penstock.limiter.run import Run


class Follower:
    """See the module's docstring; a `Job` of its connection.

    Attributes:
        run: What it follows.
        begun: Whether it has a byte of the answer.
        paused: Whether its client reads too slowly at the moment.
        position: Number of the piece of the recording that it needs next.
    """

    __slots__ = (
        "_connection", "_fields", "_frames", "_keep_alive", "_open_end", "_request", "_stream", "begun", "paused",
        "position", "run",
    )  # fmt: skip

    def __init__(self, run: Run, connection: Connection, request: Request, *, fields: Fields | None) -> None:
        """Follow a run from its beginning; `fields` go with the head instead of the run's own."""
        self.run = run
        self.begun = False
        self.paused = connection.stalled
        self.position = 0
        self._connection = connection
        self._request = request
        self._fields = fields
        self._frames = self._open_end = self._stream = self._keep_alive = False

    # ---- the run's side

    def advance(self) -> None:
        """Send what there is, as far as the client takes it."""
        while not self.paused and self._step():
            pass

    def refuse(self, refused: Refused) -> None:
        """Tell the client that there is no answer."""
        self._connection.refuse(refused)

    def cut_off(self) -> None:
        """Tell the client that what it needs is not there any more."""
        refused = Refused(Reason.FELL_BEHIND, "This answer is read by several clients, and this one read too slowly.")
        self.run.release(self)
        if not self.begun:
            self._connection.refuse(refused)
        elif self._stream and (self._frames or self._open_end):
            assert self._request.route is not None  # noqa: S101 - set by accept
            event = b"\n\n" + stream_error(refused, self._request.route.dialect)  # it may stand within an event
            self._send(self._framed(event) + (LAST_CHUNK if self._frames else b""))
            self._connection.finished(keep_alive=False)
        else:
            self._connection.break_off(reset=self._open_end)

    def abort(self) -> None:
        """End the connection."""
        self._connection.transport.abort()

    # ---- as a job

    def client_gone(self) -> None:
        """The client has left."""
        self.run.left(self)

    def filler(self) -> bytes:
        """Return bytes that can be sent now without changing the response; see `Job.filler`."""
        if not self.begun:
            return CONTINUE
        return b"0" if self._frames else b""  # a leading zero of the next chunk's size

    def client_paused(self) -> None:
        """The client reads slowly."""
        self.paused = True
        self.run.flow()

    def client_resumed(self) -> None:
        """The client has caught up with what was sent."""
        self.paused = False
        self.advance()
        self.run.flow()

    # ---- inside

    def _step(self) -> bool:
        """Send once; return whether there may be more to send."""
        run = self.run
        out = b""
        if not self.begun:
            if run.head is None:
                return False
            out = self._begin(run.head)
        recording = run.recording
        if self.position < recording.end:
            piece, self.position = recording.read(self.position)
            out += self._framed(piece)
        is_last = run.ended and self.position == recording.end
        if is_last and self._frames and not run.broken:
            out += LAST_CHUNK
        if out:
            self._send(out)
        if is_last:
            self._finish()
        return bool(out) and not is_last

    def _begin(self, head: ResponseHead) -> bytes:
        asked, closing = self._request.head, self.run.closing
        unchunk = asked.minor == 0 and head.length == CHUNKED
        self.begun = True
        self._frames = head.length == CHUNKED and not unchunk
        self._open_end = unchunk or head.length == UNTIL_CLOSE
        self._stream = (head.value(b"content-type") or b"").lower().startswith(b"text/event-stream")
        self._keep_alive = asked.keep_alive and not (self._open_end or closing)
        return client_head(
            head,
            shown_id=request_id(asked) or new_id(),
            close=not self._keep_alive,
            unchunk=unchunk,
            extra=self.run.fields if self._fields is None else self._fields,
        )

    def _finish(self) -> None:
        run = self.run
        run.release(self)
        if run.broken:
            self._connection.break_off(reset=self._open_end)
        else:
            self._connection.finished(keep_alive=self._keep_alive and not run.failed)

    def _framed(self, payload: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(payload), payload) if self._frames else payload

    def _send(self, data: bytes) -> None:
        self.run.sent(len(data))
        self._connection.transport.write(data)
