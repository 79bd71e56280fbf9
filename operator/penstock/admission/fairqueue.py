"""The requests that wait in one priority band, in the order in which tenants deserve it.

**Between tenants: deficit round robin by cost** (Shreedhar and Varghese). The tenants that have something waiting stand
in a ring. A visit adds `quantum * weight` to a tenant's deficit; as long as the deficit covers the cost of its next
request, that one goes, and its cost is taken off. So over any time in which tenants have something waiting, they get
cost in proportion to their weights, however large or many their requests are. The quantum is the mean cost of what
waits over the mean weight, so a visit serves about one request; rounds in which nobody could go are skipped in one
step.

A tenant is forgotten when nothing of it waits, and with it its deficit: coming back, it joins the end of the ring with
nothing saved up. Having been away gives no credit, and a flood of new names gains nothing but its turn.

**Within a tenant: first come first served, until the first has used more than 70 % of the time it may wait.** Then the
newest goes first: an old one will most likely be too late whatever is done, and serving it would only make those behind
it too late as well.

Every entry can be taken out at any time in constant time; what is kept for those that are gone never exceeds what is
kept for those that wait, by more than a small constant.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict

from penstock.admission.ask import Waiting

NEWEST_FIRST_AFTER = 0.7
"""Share of its budget that the first of a tenant may have used before the newest goes ahead."""

_DEAD_DEADLINES = 16

_LEAST_COST = 1e-6
"""A visit always adds something, or a round would never end."""


class _Tenant:
    """What waits of one tenant, oldest first."""

    __slots__ = ("cost", "deficit", "entries", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.deficit = 0.0
        self.cost = 0.0
        # A plain dictionary would search past all the entries that went before each time.
        self.entries: OrderedDict[Waiting, None] = OrderedDict()

    def next(self, now: float) -> Waiting:
        """Return the entry that goes next."""
        oldest = next(iter(self.entries))
        if now - oldest.since > NEWEST_FIRST_AFTER * oldest.ask.budget_seconds:
            return next(reversed(self.entries))
        return oldest


class FairQueue:
    """The requests that wait in one band.

    Attributes:
        requests: How many requests for the engine they are together.
        prefill_tokens: Their prompt tokens together.
    """

    __slots__ = (
        "_arrivals",
        "_cost",
        "_deadlines",
        "_number",
        "_ring",
        "_visited",
        "_weight",
        "prefill_tokens",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.prefill_tokens = 0
        self._cost = 0.0
        self._weight = 0.0
        self._ring: OrderedDict[str, _Tenant] = OrderedDict()
        self._visited = False
        """Whether the first of the ring has got its quantum."""
        self._arrivals: OrderedDict[Waiting, None] = OrderedDict()
        self._deadlines: list[tuple[float, int, Waiting]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def entries(self) -> list[Waiting]:
        """Return what waits, in the order of arrival."""
        return list(self._arrivals)

    @property
    def newest(self) -> Waiting:
        """Return what came last; there must be something."""
        return next(reversed(self._arrivals))

    @property
    def next_deadline(self) -> float | None:
        """Return when the next one has waited as long as it may."""
        while self._deadlines and self._deadlines[0][2] not in self._arrivals:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def push(self, entry: Waiting) -> None:
        """Add an entry at the end; its weight is its tenant's from now on."""
        ask = entry.ask
        tenant = self._ring.get(ask.tenant)
        if tenant is None:
            tenant = self._ring[ask.tenant] = _Tenant(ask.weight)
            self._weight += ask.weight
        elif tenant.weight != ask.weight:
            self._weight += ask.weight - tenant.weight
            tenant.weight = ask.weight
        tenant.entries[entry] = None
        tenant.cost += ask.cost
        self._arrivals[entry] = None
        self._number += 1
        heapq.heappush(self._deadlines, (entry.deadline, self._number, entry))
        self.requests += ask.requests
        self.prefill_tokens += ask.prefill_tokens
        self._cost += ask.cost

    def remove(self, entry: Waiting) -> None:
        """Take an entry out, wherever it stands; its tenant does not pay for it."""
        ask = entry.ask
        tenant = self._ring[ask.tenant]
        del tenant.entries[entry]
        del self._arrivals[entry]
        self.requests -= ask.requests
        self.prefill_tokens -= ask.prefill_tokens
        self._cost -= ask.cost
        tenant.cost -= ask.cost
        if not tenant.entries:
            if next(iter(self._ring)) == ask.tenant:
                self._visited = False
            del self._ring[ask.tenant]
            self._weight -= tenant.weight
        if not self._arrivals:
            self._cost = self._weight = 0.0  # no rounding error outlives a busy time
        if len(self._deadlines) > 2 * len(self._arrivals) + _DEAD_DEADLINES:
            self._deadlines = [one for one in self._deadlines if one[2] in self._arrivals]
            heapq.heapify(self._deadlines)

    def take(self, entry: Waiting) -> None:
        """Take out the entry that `head` returned, because it goes now: its tenant pays."""
        self._ring[entry.ask.tenant].deficit -= entry.ask.cost
        self.remove(entry)

    def head(self, now: float) -> Waiting | None:
        """Return the entry whose turn it is; the same again until something changes. `expire` must have been called."""
        in_vain = 0
        while self._ring:
            name, tenant = next(iter(self._ring.items()))
            if not self._visited:
                tenant.deficit += self._quantum * tenant.weight
                self._visited = True
            entry = tenant.next(now)
            if entry.ask.cost <= tenant.deficit:
                return entry
            self._ring.move_to_end(name)
            self._visited = False
            in_vain += 1
            if in_vain == len(self._ring):
                self._skip_rounds(now)
                in_vain = 0
        return None

    def expire(self, now: float) -> list[Waiting]:
        """Take out and return what has waited as long as it may."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            entry = heapq.heappop(self._deadlines)[2]
            if entry in self._arrivals:
                self.remove(entry)
                expired.append(entry)
        return expired

    def most_crowded(self, tenant: str, weight: float) -> Waiting | None:
        """Return the newest entry of the tenant that takes up the most places for its weight.

        None when giving a place of it to `tenant` would not make the places more equal.
        """
        own = self._ring.get(tenant)
        places = len(own.entries) if own else 0
        weights = self._weight - (own.weight if own else 0.0) + weight
        if places / weight >= len(self._arrivals) / weights:
            return None  # a flood is told so without looking at the others
        crowded = max(self._ring.values(), key=lambda one: len(one.entries) / one.weight)
        if len(crowded.entries) / crowded.weight <= (places + 1) / weight:
            return None
        return next(reversed(crowded.entries))

    def ahead(self, tenant: str, weight: float, cost: float) -> tuple[int, int]:
        """Return about how many requests and prompt tokens go before a new entry of a tenant.

        Until it has got what it waits for, each other tenant gets the same per weight, and no more than it waits for.
        """
        if not self._arrivals:
            return 0, 0
        own = self._ring.get(tenant)
        # `weight` is its weight from now on, whatever it was.
        weights = self._weight - (own.weight if own else 0.0) + weight
        turn = max(0.0, (cost + (own.cost if own else 0.0)) * (weights / weight) - cost)
        if turn >= self._cost:
            return self.requests, self.prefill_tokens
        part = turn / self._cost
        return round(self.requests * part), round(self.prefill_tokens * part)

    @property
    def _quantum(self) -> float:
        mean_cost = max(self._cost / len(self._arrivals), _LEAST_COST)
        return mean_cost / (self._weight / len(self._ring))

    def _skip_rounds(self, now: float) -> None:
        """Give every tenant the quanta of all rounds but the last before the first of them can go."""
        quantum = self._quantum
        rounds = min((one.next(now).ask.cost - one.deficit) / (quantum * one.weight) for one in self._ring.values())
        if rounds > 1:
            for one in self._ring.values():
                one.deficit += (math.ceil(rounds) - 1) * quantum * one.weight
