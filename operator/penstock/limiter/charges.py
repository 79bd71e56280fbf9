"""The quotas of a replica as requests meet them: what one is charged, why it is refused, and what its answer tells.

A request is charged the estimate of its cost before it goes on; its visit corrects that when the truth is known. What
the pace of a quota would hold for longer than it may wait is refused at once, since nobody would be there any more.

    quota of           | without a store       | while a store is in use
    -------------------|-----------------------|--------------------------------------
    Replica            | counted here          | counted here, before the store is asked
    all other requests | this replica's share  | the store: `charge` gives an `Asking`, `conclude` takes its answer
    connections        | this replica's share  | this replica's share
"""

from __future__ import annotations

from penstock.admission.account import Use
from penstock.admission.connected import Connected
from penstock.admission.cost import Estimate
from penstock.admission.question import Keys, Question
from penstock.admission.quotas import Quotas
from penstock.admission.quotaview import QuotaRefusal
from penstock.admission.reservation import Reservation
from penstock.admission.sharedreservation import SharedReservation
from penstock.api.policy import Policy
from penstock.api.ratelimits import OF_CONNECTIONS, QuotaUnit
from penstock.limiter import quotaheaders
from penstock.limiter.asking import Asking, Found
from penstock.limiter.identity import Identity
from penstock.limiter.refusal import Dialect, Fields, Refused
from penstock.limiter.sharedstore import SharedStore
from penstock.limiter.shedding import pace_refusal, quota_refusal


class Charges:
    """See the module's docstring.

    Attributes:
        quotas: What is counted.
        store: Where replicas count together, if anywhere.
        exist: Whether requests have any quota.
        of_connections: Whether connections have one.
        count_tokens: Whether one of the former is about tokens.
    """

    def __init__(self, *, now: float, store: SharedStore, keys: Keys) -> None:
        self.quotas = Quotas((), None, now=now)
        self.store = store
        self.exist = self.of_connections = self.count_tokens = False
        self._keys = keys
        self._pushed_share: float | None = None

    def set_share(self, share: float, *, now: float) -> None:
        """Take over a part of shared quotas, from now on in place of an equal part for every replica."""
        self._pushed_share = share
        self.quotas.set_share(share, now=now)

    def configure(self, policy: Policy, *, now: float) -> None:
        """Take over the quotas of a policy; what is counted stays counted."""
        self.quotas.configure(policy.admission.rate_limits, policy.tenants, now=now)
        share = 1 / policy.replicas if self._pushed_share is None else self._pushed_share
        self.quotas.set_share(share, now=now)
        units = _units(policy)
        self.of_connections = bool(units & OF_CONNECTIONS)
        units -= OF_CONNECTIONS
        self.exist = bool(units)
        self.count_tokens = bool(units - {QuotaUnit.REQUESTS})

    def charge(
        self, caller: Identity, estimate: Estimate, *, patience_seconds: float, dialect: Dialect, now: float
    ) -> Reservation | Asking | None:
        """Charge a request to all quotas that apply, or ask the store; None when there are none.

        Args:
            caller: Who sent it.
            estimate: What it is expected to cost.
            patience_seconds: How long it may wait.
            dialect: Whose headers its client knows.
            now: The time.

        Raises:
            Refused: a quota does not let it pass; nothing is charged.
        """
        if not self.exist:
            return None
        if self.store.url is None or not (holdings := self.quotas.shared_by(caller.tenant, caller.address)):
            return self.charge_here(caller, estimate, patience_seconds=patience_seconds, dialect=dialect, now=now)
        if self.store.in_use:
            own = self._reserve(caller, estimate, dialect=dialect, now=now, shared=False)
            use = Use(1, estimate.prompt_tokens, estimate.output_tokens)
            return Asking(Question(holdings, use, keys=self._keys), own, asked_at=now)
        self.store.decided["local"] += 1
        return self.charge_here(caller, estimate, patience_seconds=patience_seconds, dialect=dialect, now=now)

    def charge_here(
        self, caller: Identity, estimate: Estimate, *, patience_seconds: float, dialect: Dialect, now: float
    ) -> Reservation | None:
        """Charge a request to all quotas by what is counted here; see `charge`."""
        if not self.exist:
            return None
        found = self._reserve(caller, estimate, dialect=dialect, now=now, shared=True)
        if found.delay_seconds and found.delay_seconds > patience_seconds:
            found.cancel(now)
            told = self.fields(caller, None, dialect=dialect, now=now)
            raise pace_refusal(found.delay_seconds, patience_seconds=patience_seconds, fields=told)
        return found

    def conclude(
        self, asking: Asking, found: Found, caller: Identity, *, patience_seconds: float, dialect: Dialect, now: float
    ) -> SharedReservation | None:
        """Return what the store charged; None when it does not say and the question is void: charge here instead.

        Raises:
            Refused: it does not let the request pass; nothing is charged.
        """
        if isinstance(found, QuotaRefusal):
            told = (*self.quotas.view(caller.tenant, caller.address, now, shared=False), *found.view)
            asking.own.cancel(now)
            raise quota_refusal(found, fields=quotaheaders.fields(told, dialect=dialect))
        if found is None:
            asking.own.cancel(now)
            return None
        reservation = SharedReservation(found, asking.own, post=self.store.poster())
        if reservation.delay_seconds and reservation.delay_seconds > patience_seconds:
            told_fields = self.fields(caller, reservation, dialect=dialect, now=now)
            reservation.cancel(now)
            raise pace_refusal(reservation.delay_seconds, patience_seconds=patience_seconds, fields=told_fields)
        return reservation

    def connect(self, address: str | None, now: float) -> Connected | Refused | None:
        """Charge a connection; None when nothing counts it, `Refused` when its requests are to be refused.

        Args:
            address: Whose it is; None for a proxy's.
            now: The time.
        """
        if not self.of_connections:
            return None
        found = self.quotas.connect(address, now)
        return quota_refusal(found, fields=()) if isinstance(found, QuotaRefusal) else found

    def fields(
        self,
        caller: Identity,
        reservation: Reservation | SharedReservation | Asking | None,
        *,
        dialect: Dialect,
        now: float,
    ) -> Fields:
        """Return the headers that tell a caller what is left of its quotas."""
        if not self.exist:
            return ()
        if isinstance(reservation, Reservation):
            return quotaheaders.fields(reservation.view(now), dialect=dialect)
        if isinstance(reservation, SharedReservation):
            own = self.quotas.view(caller.tenant, caller.address, now, shared=False)
            return quotaheaders.fields((*own, *reservation.view), dialect=dialect)
        return quotaheaders.fields(self.quotas.view(caller.tenant, caller.address, now), dialect=dialect)

    def _reserve(
        self, caller: Identity, estimate: Estimate, *, dialect: Dialect, now: float, shared: bool
    ) -> Reservation:
        found = self.quotas.reserve(
            caller.tenant,
            caller.address,
            requests=1,
            prompt_tokens=estimate.prompt_tokens,
            output_tokens=estimate.output_tokens,
            now=now,
            shared=shared,
        )
        if isinstance(found, QuotaRefusal):
            raise quota_refusal(found, fields=quotaheaders.fields(found.view, dialect=dialect))
        return found


def _units(policy: Policy) -> set[QuotaUnit]:
    """Return what the quotas of a policy count."""
    limits = list(policy.admission.rate_limits)
    if policy.tenants is not None:
        for one in (policy.tenants.default, *policy.tenants.classes):
            limits += one.quotas(()) if one is not None else ()
    return {limit.unit for limit in limits}
