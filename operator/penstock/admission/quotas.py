"""All quotas of a replica: check every one that applies, then charge all of them or none.

A request may be held by quotas of the replica, of the backend, of its tenant and of its address, each by requests,
tokens or prompt tokens. Charging one and then being refused by the next would let refused requests eat a limit. What
several quotas refuse is told by the one that takes the longest, since only then the request passes.

Limits of the backend, of tenants and of addresses hold over all replicas. Each replica has its `share` of them, unless
a store counts them for all: then `shared_by` says which they are, and only those of the replica are counted here.
Connections are always counted here.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.admission.account import Account, Counted, QuotasOf, Use
from penstock.admission.accounts import MAXIMUM_ACCOUNTS, Accounts
from penstock.admission.connected import Connected
from penstock.admission.meter import PASS
from penstock.admission.question import Holding
from penstock.admission.quotaview import QuotaRefusal, QuotaView, Worst, longer, refusal_of, view_of
from penstock.admission.reservation import Reservation
from penstock.api.ratelimits import OF_CONNECTIONS, QuotaScope, RateLimit
from penstock.api.tenants import TenantClass, TenantLimits, TenantsPolicy

UNKNOWN_TENANT = "default"
"""What all callers are called together that are no tenant."""

_EVERYONE = TenantLimits()


class Quotas:
    """All quotas of a replica.

    Args:
        rate_limits: The backend's quotas.
        tenants: Who has others; None when all callers are one tenant.
        share: The part of this replica of what replicas share, 0 to 1.
        now: The time.
        maximum_accounts: The most tenants, and the most addresses, that are counted at the same time.
    """

    def __init__(
        self,
        rate_limits: Sequence[RateLimit],
        tenants: TenantsPolicy | None,
        *,
        now: float,
        share: float = 1.0,
        maximum_accounts: int = MAXIMUM_ACCOUNTS,
    ) -> None:
        self._share = share
        self._tenants = Accounts(maximum_accounts)
        self._addresses = Accounts(maximum_accounts)
        self._replica = Account("", _nothing, share=1.0, now=now)
        self._backend = Account("", _nothing, share=share, now=now)
        self._quotas_of: dict[QuotaScope, QuotasOf | None] = {}
        self.configure(rate_limits, tenants, now=now)

    @property
    def share(self) -> float:
        """The part of this replica of what replicas share."""
        return self._share

    @property
    def overruns(self) -> int:
        """How often a tenant or an address was forgotten although something was counted for it: 0 is right."""
        return self._tenants.overruns + self._addresses.overruns

    def configure(self, rate_limits: Sequence[RateLimit], tenants: TenantsPolicy | None, *, now: float) -> None:
        """Take over other quotas; one that has the same name, unit and holder keeps what it has counted."""
        scoped: dict[QuotaScope, QuotasOf | None] = {}
        for scope in (QuotaScope.REPLICA, QuotaScope.BACKEND, QuotaScope.ADDRESS):
            scoped[scope] = _the_same(tuple(limit for limit in rate_limits if limit.per is scope))
        scoped[QuotaScope.TENANT] = _by_tenant(rate_limits, tenants)
        self._quotas_of = scoped
        self._apply(now)

    def set_share(self, share: float, *, now: float) -> None:
        """Take over another part of what replicas share, 0 to 1; what is counted stays counted.

        Raises:
            ValueError: the share is out of its bounds.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"a share is between 0 and 1, not {share}")
        if share != self._share:
            self._share = share
            self._apply(now)

    def reserve(
        self,
        tenant: str,
        address: str,
        *,
        requests: int,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
        shared: bool = True,
    ) -> Reservation | QuotaRefusal:
        """Charge a request to every quota that applies, or say why it may not pass; then nothing is charged.

        Those that replicas share are left out without `shared`: then a store counts them.
        """
        holders, applying = self._applying(tenant, address, now, shared=shared)
        use = Use(requests, prompt_tokens, output_tokens)
        charges = []
        delay_seconds = 0.0
        worst: Worst = None
        for counted in applying:
            cost = counted.cost(use)
            check = counted.meter.check(cost, now)
            if check is not PASS:
                delay_seconds = max(delay_seconds, check.delay_seconds)
                worst = longer(worst, counted.quota, check)
            charges.append((counted, cost))
        if worst is not None:
            return refusal_of(worst, tuple(view_of(one.quota, one.meter, now) for one, _ in charges))
        for counted, cost in charges:
            counted.meter.charge(cost, now)
        for accounts, account in holders:
            accounts.open(account, now)
        return Reservation(charges, holders, use=use, delay_seconds=delay_seconds, now=now)

    def shared_by(self, tenant: str, address: str) -> list[Holding]:
        """Return the quotas that requests of a tenant from an address share with other replicas."""
        found = []
        for scope, holder in (
            (QuotaScope.BACKEND, ""),
            (QuotaScope.TENANT, tenant),
            (QuotaScope.ADDRESS, address),
        ):
            quotas_of = self._quotas_of[scope]
            if quotas_of is not None:
                found += [Holding(quota, holder) for quota in quotas_of(holder) if quota.unit not in OF_CONNECTIONS]
        return found

    def connect(self, address: str | None, now: float) -> Connected | QuotaRefusal:
        """Charge a connection, or say why it may not be had.

        Args:
            address: Whose it is; None for a proxy's, which carries the requests of many.
            now: The time.
        """
        holder = None if address is None else self._addresses.of(address, now)
        counted = [*self._replica.connections, *self._backend.connections, *(holder.connections if holder else ())]
        delay_seconds = 0.0
        worst: Worst = None
        for one in counted:
            check = one.meter.check(1, now)
            delay_seconds = max(delay_seconds, check.delay_seconds)
            worst = longer(worst, one.quota, check)
        if worst is not None:
            return refusal_of(worst, tuple(view_of(one.quota, one.meter, now) for one in counted))
        for one in counted:
            one.meter.charge(1, now)
        holders = []
        if holder is not None and holder.connections:
            self._addresses.open(holder, now)
            holders.append((self._addresses, holder))
        return Connected(counted, holders, delay_seconds=delay_seconds, now=now)

    def view(self, tenant: str, address: str, now: float, *, shared: bool = True) -> tuple[QuotaView, ...]:
        """Return what is left of each quota that applies to the requests of a tenant from an address."""
        _, applying = self._applying(tenant, address, now, shared=shared)
        return tuple(view_of(one.quota, one.meter, now) for one in applying)

    def _applying(
        self, tenant: str, address: str, now: float, *, shared: bool
    ) -> tuple[list[tuple[Accounts, Account]], list[Counted]]:
        """Return the accounts that requests are counted in, besides those of all, and all they are counted against."""
        holders: list[tuple[Accounts, Account]] = []
        counted = [*self._replica.requests]
        if not shared:
            return holders, counted
        counted += self._backend.requests
        for accounts, key in ((self._tenants, tenant), (self._addresses, address)):
            account = accounts.of(key, now)
            if account is not None and account.requests:
                holders.append((accounts, account))
                counted += account.requests
        return holders, counted

    def _apply(self, now: float) -> None:
        scoped = self._quotas_of
        self._replica.adopt(scoped[QuotaScope.REPLICA] or _nothing, share=1.0, now=now)
        self._backend.adopt(scoped[QuotaScope.BACKEND] or _nothing, share=self._share, now=now)
        self._tenants.configure(scoped[QuotaScope.TENANT], share=self._share, now=now)
        self._addresses.configure(scoped[QuotaScope.ADDRESS], share=self._share, now=now)


def _nothing(key: str) -> Sequence[RateLimit]:  # noqa: ARG001 - the same for all
    return ()


def _the_same(quotas: Sequence[RateLimit]) -> QuotasOf | None:
    """Return what gives every holder the same quotas, None for none."""
    return (lambda _: quotas) if quotas else None


def _by_tenant(rate_limits: Sequence[RateLimit], tenants: TenantsPolicy | None) -> QuotasOf | None:
    """Return what gives a tenant its quotas, None if no tenant has any."""
    if tenants is None:
        return _the_same(_EVERYONE.quotas(rate_limits))
    others = (tenants.default or _EVERYONE).quotas(rate_limits)
    of_class = {one.name: one.quotas(rate_limits) for one in tenants.classes}
    if not others and not any(of_class.values()):
        return None

    def quotas_of(tenant: str) -> Sequence[RateLimit]:
        if tenant == UNKNOWN_TENANT:  # whatever patterns there are
            return others
        limits = tenants.limits_of(tenant)
        return of_class[limits.name] if isinstance(limits, TenantClass) else others

    return quotas_of
