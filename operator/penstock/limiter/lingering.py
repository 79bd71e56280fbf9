"""Permits of requests whose client has left and whose slot the engine has not freed yet.

llama-server notices that a client has left with the next token of a stream. Before that, and for an answer that is no
stream, it looks after a second in which it has made no token for anybody, and acts when the batch of tokens at hand is
worked off. So beside busy neighbours an answer that nobody waits for is made to its end. Until then its slot is taken,
and a request that is sent meanwhile waits inside the server, where nobody can take it back. So the permit of such a
request comes back only when the engine shows the slot free.

    event                                                | what happens
    -----------------------------------------------------|----------------------------------------------
    the client leaves                                    | the permit is kept, and the engine looked at: soon if no
                                                         | other is kept, else with the next look
    metrics, asked for later, show fewer requests at work| as many permits go back, the oldest first
    metrics do not tell                                  | all go back
    the engine is gone                                   | all go back
    nothing was heard of the engine for a long time      | it goes back anyway, counted in `given_up`

Between two looks more than a second passes, because the server looks after its clients only when nobody asks it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.admission.gate import Gate
from penstock.admission.permit import Permit

FIRST_LOOK_SECONDS = 0.3
"""A stream is ended by its next token."""

NEXT_LOOK_SECONDS = 1.2
LONGEST_SECONDS = 30.0
"""How long a permit is kept without news of the engine. A slot that its metrics show taken is never given away."""


@dataclass(slots=True, eq=False)
class _Kept:
    permit: Permit
    since: float
    timer: asyncio.TimerHandle


class Lingering:
    """See the module's docstring.

    Attributes:
        given_up: Permits that came back because nothing was heard of the engine.
        look_soon: Asks for the engine's metrics in so many seconds.
        on_return: Called when permits have come back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gate: Gate, *, names: tuple[str, ...]) -> None:
        """Begin with none; `names` are the spellings of the metric that counts requests at work."""
        self.given_up = 0
        self.look_soon: Callable[[float], None] = _nothing
        self.on_return: Callable[[], None] | None = None
        self._loop = loop
        self._gate = gate
        self._pattern = re.compile(
            rb"(?m)^(?:%b)(?:\{[^}]*\})? (\S+)" % b"|".join(re.escape(n.encode()) for n in names)
        )
        self._kept: list[_Kept] = []
        self._active = 0
        """Requests with a permit and a client at the last look."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._kept)

    def requests(self) -> int:
        """Return how many requests these permits are for; nobody waits for any of them."""
        return sum(one.permit.requests for one in self._kept)

    def keep(self, permit: Permit) -> None:
        """Keep the permit of a request whose client has left."""
        now = self._loop.time()
        if self._closed:
            permit.cancel(now)
            return
        if not self._kept:
            self._active = self._gate.in_flight - permit.requests
            self.look_soon(FIRST_LOOK_SECONDS)  # else clients that leave one by one would keep the server from noticing
        self._kept.append(_Kept(permit, now, self._timer(permit)))

    def seen(self, metrics: bytes, asked_at: float) -> None:
        """Take the engine's metrics, which were asked for at a time."""
        if not self._kept:
            return
        at_work = self._at_work(metrics)
        total = self.requests()
        # Who has a client may be at work, but one that was sent since the last look may not be seen yet; what is beyond
        # that is theirs who have left.
        active = self._gate.in_flight - total
        taken = 0 if at_work is None else max(0, at_work - min(active, self._active))
        self._active = active
        back = []
        for one in self._kept:
            if one.since < asked_at and total - one.permit.requests >= taken:
                total -= one.permit.requests
                back.append(one)
        self._give_back(back)
        for one in self._kept:
            one.timer.cancel()
            one.timer = self._timer(one.permit)
        if self._kept:
            self.look_soon(NEXT_LOOK_SECONDS)

    def all_gone(self) -> None:
        """The engine has ended, and with it whatever it was doing."""
        self._give_back(list(self._kept))

    def close(self) -> None:
        """Keep none from now on: the process ends."""
        self._closed = True
        self.all_gone()

    def _timer(self, permit: Permit) -> asyncio.TimerHandle:
        return self._loop.call_later(LONGEST_SECONDS, self._time_is_up, permit)

    def _at_work(self, metrics: bytes) -> int | None:
        found = self._pattern.search(metrics)
        try:
            return None if found is None else int(float(found[1]))
        except (ValueError, OverflowError):
            return None

    def _time_is_up(self, permit: Permit) -> None:
        self.given_up += permit.requests
        self._give_back([one for one in self._kept if one.permit is permit])

    def _give_back(self, back: list[_Kept]) -> None:
        if not back:
            return
        now = self._loop.time()
        for one in back:
            self._kept.remove(one)
            one.timer.cancel()
            one.permit.cancel(now)
        if self.on_return is not None:
            self.on_return()


def _nothing(seconds: float) -> None:
    """Nobody looks at the engine yet."""
