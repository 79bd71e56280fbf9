"""The gate: which request goes to the engine now, which waits, and which is refused.

It does no input or output and knows no clock: the caller says what happens and when, and collects what follows.

    call                                    | answer                       | what may follow
    ----------------------------------------|------------------------------|------------------------------------
    `ask`                                   | `Permit`, `Waiting`, `Shed`  | others are pushed out
    `Permit.first_byte`, `finish`, `cancel` |                              | others go
    `Waiting.leave`                         |                              | others go
    `Limit.set`, `pin`, `configure`         |                              | others go
    `Gate.set_rate`                         |                              | others go
    time passes (`wake_at`)                 |                              | those that waited too long are dropped,
                                            |                              | and those that R held go

After each of these the caller calls `advance`, which returns everything that follows. Nothing goes ahead in between:
an ask that comes first stands behind those whose turn it already is.

**At once** goes a request if nobody waits who would go first, and there is room: requests in flight within the limit L
and the ceiling and reserves of its band (`bands`), prompt tokens that the engine has not worked off yet within T, and
the pace R leaves one (`pace`). A prompt above T goes when no other is being worked off, a request above L when nothing
is in flight.

**Else it waits**, if the queue has a place and the predicted wait (`waits`) and its own prompt fit into its budget. In
a full queue it may take the place of another (`line`).

**Order**: bands strictly, the highest first; inside a band the fair queue decides. While the first of a band cannot go,
nothing below it goes, even if it would fit: small requests must not starve a large one. The only exception: while it is
held by the ceiling of its band, a lower one may enter what is reserved for that lower band, since that does not delay
it.

**Shadow** (`shadow=True`, or `enforce=False` for one ask): the same decision is made and counted, and the request goes
at once whatever it is. A request that should be refused does not count against any limit, so it does not change what is
decided for others. One that should wait stands in the queue for the decisions of others, and counts against the limits
from the moment at which its turn would have come. So decisions and counters are those of an enforcing gate, except for
what follows from the fact that nobody really waits: a request may end before its turn would have come, and then gives
its place in the queue up; requests that wait finish earlier than they would; clients that would have left, or come back
because they were refused, do not.
"""

from __future__ import annotations

from penstock.admission.ask import Ask, Dropped, Granted, Place, Waiting
from penstock.admission.bands import Bands, Verdict
from penstock.admission.gatestate import GateState
from penstock.admission.permit import Outcome, Permit
from penstock.admission.shed import Shed

QUEUE_PER_LIMIT = 10
"""Places in the queue per request that may be in flight, unless the policy names a number."""


class Gate(GateState):
    """Decides about the requests of one replica and counts them."""

    __slots__ = ()

    def ask(self, ask: Ask, now: float, *, enforce: bool = True) -> Permit | Waiting | Shed:
        """Decide about a request.

        Returns:
            A permit, a place in the queue, or why there is neither; always a permit in shadow mode and without
            `enforce`, whose `would` says what it should have been.
        """
        enforce = enforce and not self.shadow
        self.books.asked += ask.requests
        band = self.bands.index(ask.band)
        if self._line.depth:
            self._expire(now)
        verdict = self._verdict(ask, band, now)
        if verdict.admits and (not self._line.depth or self._goes_first(verdict, band, now)):
            permit = self._admit(ask, band)
            if self.pace.per_second is not None:
                self.pace.take(ask.requests, now)
            self._watch(now)
            return permit
        shed = self._refusal(ask, band, now)
        if shed is not None:
            self.books.shed[self.bands.names[band], shed] += ask.requests
            return shed if enforce else self._admit(ask, band, would=shed)
        waiting = Waiting(self, ask, band=band, since=now)
        self._line.push(waiting)
        self._watch(now)
        if enforce:
            return waiting
        waiting.permit = self._admit(ask, band, would=waiting)
        return waiting.permit

    def set_rate(self, per_second: float | None, now: float) -> None:
        """Set R, how many requests per second may go; None for no bound."""
        self.pace.set(per_second, now)
        self._watch(now)

    def pass_by(self, ask: Ask, shed: Shed) -> Permit:
        """Admit a request that should have been refused before it came here: nothing is decided about it.

        Its permit counts against no limit, like that of any request that goes though it should not.
        """
        self.books.asked += ask.requests
        return self._admit(ask, self.bands.index(ask.band), would=shed)

    def advance(self, now: float) -> list[Granted | Dropped]:
        """Return what follows from everything that happened: who was refused, and who goes now, in that order."""
        if self._paced_until is not None:
            self._rate_held_at = now
            self._paced_until = None
        if not self._line.depth and not self._dropped:
            return []
        self._expire(now)
        events: list[Granted | Dropped] = [one for one in self._dropped if one.waiting.place is Place.DROPPED]
        for event in events:
            event.waiting.place = Place.TOLD
        self._dropped.clear()
        only_reserved = False
        for band, queue in enumerate(self._line.queues):
            if not queue:
                continue
            verdict = None
            while (entry := queue.head(now)) is not None:
                verdict = self._verdict(entry.ask, band, now)
                if verdict is not Verdict.BULKHEAD and (verdict is not Verdict.ENTER or only_reserved):
                    break
                granted = self._grant(entry, now)
                if granted is not None:
                    events.append(granted)
            if verdict is Verdict.PACED and entry is not None:
                self._paced_until = now + self.pace.wait_seconds(entry.ask.requests, now)
                self._note_paced(entry, now)
            if verdict is Verdict.FULL or verdict is Verdict.PACED:
                break
            only_reserved = only_reserved or bool(queue)
        self._watch(now)
        return events

    def wake_at(self) -> float | None:
        """Return when `advance` must be called if nothing happens before; None for never."""
        if not self._line.depth:
            return None
        deadline, paced = self._line.next_deadline, self._paced_until
        return deadline if paced is None or (deadline is not None and deadline < paced) else paced

    def configure(self, bands: Bands, *, queue_limit: int | None, shadow: bool, now: float) -> None:
        """Put a new policy in force; the limit L has its own way to change.

        Permits and places in the queue are kept, even above the new bounds. What belongs to a class that is gone counts
        as `normal`, and waits behind those that wait there. When decisions are enforced from now on, everything in
        flight counts against the limits, and places that were only kept for the sake of decisions are given up.
        """
        index = [bands.index(name) for name in self.bands.names]
        self._line.configure(bands, index)
        self._holdings.rebase(index, len(bands.names))
        if self.shadow and not shadow:
            for permit in self._holdings.permits:
                self._count(permit)
        self.bands = bands
        self.queue_limit = queue_limit
        self.shadow = shadow
        self._watch(now)

    def end_prefill(self, permit: Permit, now: float) -> None:
        """Take the prefill tokens of a permit back; called by `Permit` only."""
        if permit.counts:
            self.waits.prefill.add(permit.prefill_tokens, now)
        self._holdings.end_prefill(permit)
        permit.prefill_tokens = 0
        self._watch(now)

    def take_back(self, permit: Permit, outcome: Outcome | None, now: float) -> None:
        """Take a permit back; called by `Permit` only."""
        self._holdings.take_back(permit)
        books = self.books
        books.in_flight -= permit.requests
        if outcome is None:
            books.cancelled += permit.requests
        else:
            books.finished[outcome] += permit.requests
        if permit.counts:
            self.waits.completions.add(permit.requests, now)
        else:
            self._give_up_place(permit)
        permit.prefill_tokens = 0
        self._watch(now)

    def leave(self, waiting: Waiting, now: float) -> None:
        """Take a request out of the queue; called by `Waiting` only."""
        self._line.remove(waiting, Place.LEFT)
        self.books.left += waiting.ask.requests
        self._watch(now)

    def _goes_first(self, verdict: Verdict, band: int, now: float) -> bool:
        """Return whether none of those that wait goes before one that may enter with such a verdict."""
        if self._line.queues[band]:
            return False
        for higher in range(band):
            head = self._line.queues[higher].head(now)
            if head is not None and (
                verdict is not Verdict.BULKHEAD or self._verdict(head.ask, higher, now) is not Verdict.CEILING
            ):
                return False
        return True

    def _verdict(self, ask: Ask, band: int, now: float) -> Verdict:
        """Return whether there is room for a request, whoever else waits."""
        backlog = self._holdings.prefill_backlog
        if self.prefill_limit is not None and backlog and backlog + ask.prefill_tokens > self.prefill_limit:
            return Verdict.FULL
        verdict = self.bands.verdict(band, self._holdings.by_band, self.limit.value, ask.requests)
        # R holds whom there is room for, and then nothing below goes first either.
        paced = self.pace.per_second is not None and verdict.admits
        return Verdict.PACED if paced and self.pace.wait_seconds(ask.requests, now) else verdict

    def _refusal(self, ask: Ask, band: int, now: float) -> Shed | None:
        """Return why a request cannot wait; None when it has a place now, which another may have lost to it."""
        places = QUEUE_PER_LIMIT * self.limit.value if self.queue_limit is None else self.queue_limit
        if places == 0:
            return Shed.QUEUE_FULL
        predicted = self._predicted_seconds(ask, band, now)
        if ask.budget_seconds <= 0 or (predicted is not None and predicted > ask.budget_seconds):
            return Shed.WAIT_TOO_LONG
        if self._line.depth >= places:
            yields = self._line.yields(ask, band)
            if yields is None:
                return Shed.QUEUE_FULL
            waiting, shed = yields
            self._line.remove(waiting, Place.DROPPED)
            self._note_dropped(waiting, shed, now)
        return None

    def _predicted_seconds(self, ask: Ask, band: int, now: float) -> float | None:
        """Return how long a request would wait for its first token, its own prompt included; None when unknown."""
        requests, tokens = self._line.ahead(ask, band)
        room = self.bands.room(band, self._holdings.by_band, self.limit.value).requests
        position = max(0, requests + ask.requests - room)
        seconds = self.waits.predicted_seconds(position, tokens + self.prefill_backlog, now)
        paced = self.pace.queue_seconds(requests + ask.requests, now)
        if seconds is None and not paced:
            return None
        return max(seconds or 0.0, paced) + self.waits.prefill_seconds(ask.prefill_tokens, now)

    def _admit(self, ask: Ask, band: int, *, would: Waiting | Shed | None = None) -> Permit:
        requests, books = ask.requests, self.books
        permit = Permit(self, band=band, requests=requests, prefill_tokens=ask.prefill_tokens, would=would)
        self._holdings.permits.add(permit)
        books.admitted += requests
        books.in_flight += requests
        if ask.retry:
            books.retries += requests
        if would is None:
            self._holdings.count(permit)
        return permit

    def _count(self, permit: Permit) -> None:
        """Let a permit count against the limits from now on."""
        if not permit.counts:
            self._give_up_place(permit)
            self._holdings.count(permit)

    def _give_up_place(self, permit: Permit) -> None:
        """Remove the entry that stands in the queue for a permit that is out already, if there is one."""
        if isinstance(permit.would, Waiting) and permit.would.place is Place.WAITING:
            self._line.remove(permit.would, Place.LEFT)

    def _grant(self, waiting: Waiting, now: float) -> Granted | None:
        """Let a waiting request go; None when it went before, because decisions are not enforced."""
        self._line.take(waiting)
        self.pace.take(waiting.ask.requests, now)
        if waiting.permit is not None:
            self._count(waiting.permit)
            return None
        return Granted(waiting, self._admit(waiting.ask, waiting.band), now - waiting.since)

    def _expire(self, now: float) -> None:
        for waiting in self._line.expire(now):
            self._note_dropped(waiting, Shed.QUEUE_TIMEOUT, now)

    def _note_dropped(self, waiting: Waiting, shed: Shed, now: float) -> None:
        self.books.shed[self.bands.names[waiting.band], shed] += waiting.ask.requests
        if waiting.permit is not None:
            waiting.permit.would = shed
        else:
            self._dropped.append(Dropped(waiting, shed, now - waiting.since))

    def _note_paced(self, waiting: Waiting, now: float) -> None:
        self._rate_held_at = now
        if not waiting.paced:
            waiting.paced = True
            self.books.paced += waiting.ask.requests

    def _watch(self, now: float) -> None:
        # While R holds requests, what ends says how much was let in, and not what the engine can do.
        waiting = self._line.depth > 0 and self._paced_until is None
        self.waits.watch(now, waiting=waiting, prefilling=self._holdings.prefill_backlog > 0)
