"""One run of the engine and everyone who follows it: for whoever serves it, a single client.

Theory of operation. A run takes the place of a connection for its turn and its exchange. What the engine says is
recorded, and followers read the recording at their own pace, so none of them slows another. The engine is paused while
all of them are. A follower that pauses while another goes on needs what is recorded; a run with a key remembers
everything up to a size (`admission.idempotency`), any other only what somebody still needs, and never more than
256 KiB.

    event                  | what happens
    -----------------------|-------------------------------------------------------------------------------
    a follower leaves      | the others follow on
    the last one leaves    | the request is given up at once, like one whose client has left; but a run at
                           | the engine with a key that its owner chose goes on for `RECLAIM_SECONDS`
    one comes in that time | it follows the run from its beginning
    nobody comes           | the request is given up
    the answer is complete | kept under its key if it is a success; followers read on from the recording
    it fails               | every follower is told, each by the means that it has left
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.admission.idempotency import RECLAIM_SECONDS, Coalesced, Entry
from penstock.limiter.client import Sink
from penstock.limiter.follower import Follower
from penstock.limiter.head import ResponseHead
from penstock.limiter.passage import Traffic
from penstock.limiter.recording import Recording
from penstock.limiter.refusal import Fields, Refused
from penstock.limiter.service import Job, Request

if TYPE_CHECKING:
    from penstock.limiter.coalesce import Coalescing
    from penstock.limiter.connection import Connection
    from penstock.limiter.unsent import Data

FIELD_OVERHEAD_BYTES = 256
"""What a header takes beside its bytes."""


class Run:
    """See the module's docstring; a `Client` of its job, and the `Sink` of its answer.

    Attributes:
        request: What was asked, with the body; its job serves the run. None when it is over: what is kept of an answer
            must not hold on to a head of any size.
        head: The engine's head; None before it came.
        fields: The headers of the limiter's own for the first follower.
        recording: What the engine said.
        traffic: Counts what is recorded; what followers are sent is counted where all traffic is.
        at_engine: Whether its turn has come.
        reclaimable: Whether somebody may come back to it.
        ended: Whether nothing more comes.
        failed: Whether its end is an error that followers were told of.
        broken: Whether its end is none.
    """

    __slots__ = (
        "_entry", "_followers", "_hub", "_is_over", "_stalled", "_timer", "at_engine", "broken", "ended", "failed",
        "fields", "head", "reclaimable", "recording", "request", "traffic",
    )  # fmt: skip

    def __init__(self, hub: Coalescing, request: Request, *, keyed: bool) -> None:
        """Begin without followers."""
        self.request: Request | None = request
        self.head: ResponseHead | None = None
        self.fields: Fields = ()
        self.recording = Recording(whole=keyed)
        self.traffic = Traffic()
        self.at_engine = self.reclaimable = self.ended = self.failed = self.broken = False
        self._hub = hub
        self._entry: Entry[Run] | None = None
        self._followers: dict[Follower, None] = {}
        self._is_over = self._stalled = False
        self._timer: asyncio.TimerHandle | None = None

    def remember_as(self, entry: Entry[Run], *, reclaimable: bool) -> None:
        """Be found by a key."""
        self._entry = entry
        self.reclaimable = reclaimable

    # ---- followers

    @property
    def closing(self) -> bool:
        """Whether every response ends its connection."""
        return self._hub.closing

    @property
    def is_alone(self) -> bool:
        """Whether nobody follows it."""
        return not self._followers

    def follow(self, connection: Connection, request: Request, *, fields: Fields | None = None) -> None:
        """Let a connection have the answer, from its beginning."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        follower = Follower(self, connection, request, fields=fields)
        request.release_body()
        request.job = follower
        self._followers[follower] = None
        follower.advance()
        self.flow()

    def left(self, follower: Follower) -> None:
        """A follower's client is gone."""
        if follower not in self._followers:
            return
        self.release(follower)
        if self._followers:
            self._trim()
            self.flow()
        else:
            self._nobody_follows()

    def release(self, follower: Follower) -> None:
        """Forget a follower that is served or gone."""
        self._followers.pop(follower, None)

    def flow(self) -> None:
        """Pause the engine while all followers are paused, and only then."""
        stalled, job = self.stalled, self._job
        if stalled is self._stalled or job is None:
            return
        self._stalled = stalled
        if stalled:
            job.client_paused()
        else:
            job.client_resumed()

    def sent(self, size: int) -> None:
        """A follower was sent so many bytes."""
        self._hub.traffic.bytes_sent += size

    # ---- as a client

    @property
    def transport(self) -> Sink:
        """Itself: it takes the bytes of the answer."""
        return self

    @property
    def stalled(self) -> bool:
        """Whether all followers are paused."""
        return bool(self._followers) and all(follower.paused for follower in self._followers)

    def begin(self, head: ResponseHead, fields: Fields) -> None:
        """Take the head of the answer; followers are told with the first bytes or the end."""
        self.head = head
        self.fields = fields
        if self._entry is not None and self.recording.whole:
            self.recording.whole = self._hub.runs.grew(self._entry, _held_bytes(head))

    def write(self, data: Data) -> None:
        """Take payload; after the end of the exchange this is the error that the run ends with."""
        if data:
            self.recording.add(bytes(data))
            if self._is_over:
                self.failed = True
            elif self._entry is not None and self.recording.whole:
                self.recording.whole = self._hub.runs.grew(self._entry, len(data))
        self._advance()
        self._trim()
        if not (self._followers or self.recording.whole or self._is_over):
            self._hub.loop.call_soon(self._give_up_alone)  # later: whoever writes is in the middle of something

    def refuse(self, refused: Refused) -> None:
        """Answer everybody with an error."""
        self.over(kept=False)
        followers, self._followers = self._followers, {}
        for follower in followers:
            follower.refuse(refused)

    def finished(self, *, keep_alive: bool) -> None:  # noqa: ARG002 - each follower knows about its own connection
        """The answer is complete, or ends with an error that was written."""
        self.ended = True
        self._advance()

    def break_off(self, *, reset: bool) -> None:  # noqa: ARG002 - that depends on each follower's framing
        """The answer ends before it is complete."""
        self.ended = self.broken = True
        self._advance()

    def abort(self) -> None:
        """End all connections."""
        self.over(kept=False)
        followers, self._followers = self._followers, {}
        for follower in followers:
            follower.abort()

    def over(self, *, kept: bool) -> None:
        """Nobody serves it any more; harmless when repeated."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        request, self.request = self.request, None
        if request is not None:
            request.release_body()
            request.job = None
        if self._entry is not None:
            self._hub.ended(self._entry, kept=kept)

    # ---- inside

    @property
    def _job(self) -> Job | None:
        return None if self.request is None else self.request.job

    def _advance(self) -> None:
        for follower in list(self._followers):
            follower.advance()

    def _trim(self) -> None:
        """Keep what is needed, and tell those for whom it was too much."""
        if self.recording.whole:
            return
        recording = self.recording
        recording.forget_before(min((one.position for one in self._followers), default=recording.end))
        for follower in [one for one in self._followers if one.position < recording.first]:
            self._hub.count(Coalesced.FELL_BEHIND)
            follower.cut_off()

    def _nobody_follows(self) -> None:
        if self._is_over:
            return
        if self.reclaimable and self.at_engine and self.recording.whole and self._hub.admits:
            self._timer = self._hub.loop.call_later(RECLAIM_SECONDS, self._give_up_alone)
            self.flow()
        else:
            self._give_up()

    def _give_up_alone(self) -> None:
        if not self._followers:
            if self._timer is not None:
                self._hub.count(Coalesced.ABANDONED)
            self._give_up()

    def _give_up(self) -> None:
        job = self._job
        if job is not None:
            job.client_gone()
        self.over(kept=False)


def _held_bytes(head: ResponseHead) -> int:
    """Return about what a head takes in memory."""
    return sum(FIELD_OVERHEAD_BYTES + 2 * len(key) + len(value) for key, _, value in head.fields)
