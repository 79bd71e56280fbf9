"""How a request becomes a visit: who sent it, what it asks for, how long it may wait, and whether it repeats another.

identify   by the head, before the body is read     401 for callers whom nobody knows
read       from the body                            400 for what is wrong
check      a repetition, while others wait          503 retry_budget_exhausted
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.admission.cost import CostModel
from penstock.admission.retrybudget import RetryBudget
from penstock.admission.shed import Shed
from penstock.api.admission import NORMAL, AdmissionPolicy
from penstock.api.policy import Policy
from penstock.limiter import reading
from penstock.limiter.address import TrustedProxies, shown
from penstock.limiter.decisions import Decisions
from penstock.limiter.head import RequestHead
from penstock.limiter.identity import EVERYONE, Identifier, Identity
from penstock.limiter.keys import KeyFolder
from penstock.limiter.path import Route
from penstock.limiter.patience import number, patience_seconds
from penstock.limiter.refusal import Refused
from penstock.limiter.visit import Visit
from penstock.limiter.wish import Wish

if TYPE_CHECKING:
    from penstock.limiter.admission import Admission

RETRY_COUNT_HEADER = b"x-stainless-retry-count"


class Reception:
    """See the module's docstring.

    Attributes:
        identifier, keys, costs, retries: The parts; no keys when none are mounted.
    """

    def __init__(
        self, admission: Admission, decisions: Decisions, *, tenants_path: str | None, context_tokens: int | None
    ) -> None:
        self._admission = admission
        self._decisions = decisions
        self._policy = policy = AdmissionPolicy()
        self._classes = {one.name: one for one in policy.classes}
        self._lets_all_in = True
        self._proxies = TrustedProxies(())
        self.keys = KeyFolder(Path(tenants_path)) if tenants_path else None
        self.identifier = Identifier(None, keys=self.keys)
        self.costs = CostModel(context_tokens=context_tokens)
        self.retries = RetryBudget(policy.retry_budget_percent)

    def configure(self, policy: Policy) -> None:
        """Put a policy in force; what was learned is kept."""
        self._policy = policy.admission
        self._classes = {one.name: one for one in policy.admission.classes}
        self._lets_all_in = policy.tenants is None or policy.tenants.default is not None
        self._proxies = TrustedProxies(policy.tenants.trusted_proxies if policy.tenants is not None else ())
        self.retries.percent = policy.admission.retry_budget_percent
        self.identifier.reconfigure(policy.tenants)

    def identify(self, head: RequestHead, peer: str) -> Identity:
        """Say who calls.

        Raises:
            Refused: nobody that is let in.
        """
        try:
            return self.identifier.identify(head, peer)
        except Refused as refused:
            if not self._decisions.disabled:
                self._decisions.refuse(NORMAL, Shed.UNKNOWN_CALLER, refused)
        return self.identifier.identify(head, peer, refuse=False)

    def address_of(self, peer: str) -> str | None:
        """Return whose connection it is; None for a trusted proxy's, which carries the requests of many."""
        return None if self._proxies.trusts(peer) else shown(peer)

    def visit(self, head: RequestHead, caller: Identity, wish: Wish, route: Route) -> Visit:
        """Return the visit of a request that asks for something."""
        bands = self._admission.gate.bands
        band = bands.names[bands.index(caller.priority_class(head))]
        now = self._admission.now()
        deadline = now + patience_seconds(head, self._classes[band], self._policy.queue)
        estimate = self.costs.estimate(
            wish.model or "", wish.prompt, sequences=wish.sequences, max_output_tokens=wish.max_output_tokens
        )
        return Visit(
            self._admission,
            caller,
            wish,
            dialect=route.dialect,
            band=band,
            since=now,
            deadline=deadline,
            estimate=estimate,
        )

    def read(self, head: RequestHead, caller: Identity, route: Route, body: bytes) -> Visit:
        """Return the visit of a request whose body is here.

        Raises:
            Refused: the body is wrong.
        """
        wish = reading.wish_of(route, body)
        if isinstance(wish, Refused):
            visit = self.visit(head, caller, reading.unread(route), route)
            self._decisions.refuse_visit(visit, Shed.BAD_REQUEST, wish)
            return visit
        visit = self.visit(head, caller, wish, route)
        if caller.tenant == EVERYONE and not self._lets_all_in:
            visit.would = Shed.UNKNOWN_CALLER  # counted when it came
        return visit

    def check(self, visit: Visit, head: RequestHead, *, refusal: Callable[[Shed], Refused]) -> None:
        """Find out whether a request is a repetition that is one too many; while nobody has to wait it does no harm.

        Raises:
            Refused: it is.
        """
        if visit.would is not None:
            return
        count = int(number(head, RETRY_COUNT_HEADER) or 0) if RETRY_COUNT_HEADER in head.values else 0
        visit.retry = self.retries.is_retry(visit.mark, retry_count=count, now=visit.since)
        if not visit.retry:
            return
        gate = self._admission.gate
        is_busy = gate.depth > 0 or gate.in_flight >= gate.limit.value
        if is_busy and not self.retries.allows(visit.since):
            self._decisions.refuse_visit(visit, Shed.RETRY_BUDGET, refusal(Shed.RETRY_BUDGET))
