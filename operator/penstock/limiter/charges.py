"""The quotas of a replica as requests meet them: what one is charged, why it is refused, and what its answer tells.

A request is charged the estimate of its cost before it goes on; its visit corrects that when the truth is known. What
the pace of a quota would hold for longer than it may wait is refused at once, since nobody would be there any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.admission.cost import Estimate
from penstock.admission.quotas import QuotaRefusal, Quotas, QuotaView
from penstock.admission.reservation import Reservation
from penstock.api.policy import Policy
from penstock.api.ratelimits import QuotaUnit
from penstock.limiter import quotaheaders
from penstock.limiter.identity import Identity
from penstock.limiter.refusal import Dialect, Fields
from penstock.limiter.shedding import pace_refusal, quota_refusal


class Charges:
    """See the module's docstring.

    Attributes:
        quotas: What is counted.
        exist: Whether requests have any quota.
        count_tokens: Whether one of them is about tokens.
    """

    def __init__(self, *, now: float) -> None:
        self.quotas = Quotas((), None, now=now)
        self.exist = self.count_tokens = False

    def configure(self, policy: Policy, *, now: float) -> None:
        """Take over the quotas of a policy; what is counted stays counted."""
        self.quotas.configure(policy.admission.rate_limits, policy.tenants, now=now)
        self.quotas.set_share(1 / policy.replicas, now=now)
        units = _units(policy) - {QuotaUnit.CONNECTIONS}
        self.exist = bool(units)
        self.count_tokens = bool(units - {QuotaUnit.REQUESTS})

    def reserve(
        self, caller: Identity, estimate: Estimate, *, patience_seconds: float, dialect: Dialect, now: float
    ) -> Reservation | None:
        """Charge a request to all quotas that apply; None when there are none.

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
        found = self.quotas.reserve(
            caller.tenant,
            caller.address,
            requests=1,
            prompt_tokens=estimate.prompt_tokens,
            output_tokens=estimate.output_tokens,
            now=now,
        )
        if isinstance(found, QuotaRefusal):
            raise quota_refusal(found, fields=_told(found.view, dialect))
        if found.delay_seconds and found.delay_seconds > patience_seconds:
            found.cancel(now)
            told = self.fields(caller, dialect=dialect, now=now)
            raise pace_refusal(found.delay_seconds, patience_seconds=patience_seconds, fields=told)
        return found

    def fields(self, caller: Identity, *, dialect: Dialect, now: float) -> Fields:
        """Return the headers that tell a caller what is left of its quotas."""
        if not self.exist:
            return ()
        return _told(self.quotas.view(caller.tenant, caller.address, now), dialect)


def _told(view: Sequence[QuotaView], dialect: Dialect) -> Fields:
    return quotaheaders.fields(view, dialect=dialect, now=datetime.now(UTC))


def _units(policy: Policy) -> set[QuotaUnit]:
    """Return what the quotas of a policy count."""
    limits = list(policy.admission.rate_limits)
    if policy.tenants is not None:
        for one in (policy.tenants.default, *policy.tenants.classes):
            limits += one.quotas(()) if one is not None else ()
    return {limit.unit for limit in limits}
