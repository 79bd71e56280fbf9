"""The requests that wait, each with the client behind it, and what ends their wait.

    a request is     | since                               | until
    -----------------|-------------------------------------|-------------------------------------------------
    waiting          | the gate has given it a place       | the gate says that it goes, or that it is dropped
    delayed          | a quota has told it to start later  | that time has come; then the gate is asked
    asking           | the shared store is asked           | it has answered, or has not in time

Each ends as well when the client leaves and when everybody is sent away. What follows from an event at the gate is
collected by `advance`, which is called after each. One timer stands for all deadlines of the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.admission.ask import Dropped, Granted, Waiting
from penstock.admission.gate import Gate
from penstock.admission.shed import Shed
from penstock.limiter.admissionmetrics import WaitHistogram
from penstock.limiter.refusal import Refused
from penstock.limiter.turn import Turn

logger = logging.getLogger(__name__)


class WaitingRoom:
    """See the module's docstring.

    Attributes:
        waits: How long requests had a place in the queue.
        on_idle: Called when nobody waits any more, for the engine or here.
        abandoned: Returns how many requests at the engine nobody waits for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gate: Gate, *, refusal: Callable[[Shed], Refused]) -> None:
        """Begin empty; `refusal` says what a client is told."""
        self._loop = loop
        self._gate = gate
        self._refusal = refusal
        self._waiting: dict[Waiting, Turn] = {}
        self._delayed: dict[Turn, asyncio.TimerHandle] = {}
        self._asking: set[Turn] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._advancing = self._again = False
        self.waits = WaitHistogram()
        self.on_idle: Callable[[], None] | None = None
        self.abandoned: Callable[[], int] = int

    def __len__(self) -> int:
        return len(self._waiting) + len(self._delayed) + len(self._asking)

    @property
    def delayed(self) -> int:
        """How many are held by the pace of a quota."""
        return len(self._delayed)

    def enter(self, turn: Turn, waiting: Waiting) -> None:
        """Let a request wait that has a place in the queue."""
        self._waiting[waiting] = turn
        self.advance()  # the place may have been another's

    def delay(self, turn: Turn, seconds: float, then: Callable[[Turn], None]) -> None:
        """Let a request wait for some time."""
        self._delayed[turn] = self._loop.call_later(seconds, self._delay_is_over, turn, then)

    def hold(self, turn: Turn) -> None:
        """Let a request wait until `release`."""
        self._asking.add(turn)

    def release(self, turn: Turn) -> None:
        """A request that was held goes on."""
        self._asking.discard(turn)

    def client_left(self, turn: Turn) -> None:
        """A request that waited is wanted no more."""
        self._asking.discard(turn)
        timer = self._delayed.pop(turn, None)
        if timer is not None:
            timer.cancel()
        turn.visit.give_up()

    def give_place_back(self, waiting: Waiting) -> None:
        """Take a request out of the queue."""
        self._waiting.pop(waiting, None)
        waiting.leave(self._loop.time())

    def empty(self) -> list[Turn]:
        """Send all requests out and return them; their places are given back."""
        turns = [*self._waiting.values(), *self._delayed, *self._asking]
        for waiting in self._waiting:
            waiting.leave(self._loop.time())
        for timer in self._delayed.values():
            timer.cancel()
        self._waiting.clear()
        self._delayed.clear()
        self._asking.clear()
        return turns

    def refuse_all(self, refused: Refused) -> None:
        """Answer all requests that wait. None of them goes in the meantime, though places become free."""
        for turn in self.empty():
            turn.visit.dropped()
            turn.refused(refused)
        self.advance()

    def advance(self, now: float | None = None) -> None:
        """Do what follows from what happened at the gate; `now` spares a look at the clock."""
        self._again = True
        if self._advancing:
            return
        self._advancing = True
        if now is None:
            now = self._loop.time()
        try:
            while self._again:
                self._again = False
                for event in self._gate.advance(now):
                    turn = self._waiting.pop(event.waiting)
                    try:
                        self._tell(turn, event, now)
                    except Exception:
                        # A defect that one request meets must not keep the others from their permits.
                        logger.exception("a request could not be told that its wait is over")
                        turn.fail()
                if self._again:
                    now = self._loop.time()  # of what happened meanwhile
        finally:
            self._advancing = False
        due = self._gate.wake_at()
        if due is not None or self._timer is not None:
            self._set_timer(due)
        if self._gate.books.in_flight <= self.abandoned() and self.on_idle is not None and not self:
            self.on_idle()

    def _tell(self, turn: Turn, event: Granted | Dropped, now: float) -> None:
        band, waited = event.waiting.ask.band, event.waited_seconds
        if isinstance(event, Granted):
            self.waits.observe(waited, band=band, outcome="granted")
            turn.visit.granted(event.permit, now)
            turn.granted()
        else:
            self.waits.observe(waited, band=band, outcome=event.shed)
            turn.visit.dropped()
            turn.refused(self._refusal(event.shed))

    def _delay_is_over(self, turn: Turn, then: Callable[[Turn], None]) -> None:
        del self._delayed[turn]
        then(turn)

    def _set_timer(self, due: float | None) -> None:
        if self._timer is not None:
            if due is not None and self._timer.when() <= due:
                return  # it wakes early, and then is set anew: cheaper than a new timer for every request
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.advance()
