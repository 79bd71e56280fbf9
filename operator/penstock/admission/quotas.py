"""All quotas of a replica: check every one that applies, then charge all of them or none.

A request may be held by quotas of the replica, of the backend, of its tenant and of its address, each by requests,
tokens or prompt tokens. Charging one and then being refused by the next would let refused requests eat a limit. What
several quotas refuse is told by the one that takes the longest, since only then the request passes.

Limits of the backend, of tenants and of addresses hold over all replicas; without a shared store each replica has its
`share` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isinf

from penstock.admission.account import Account, Counted, QuotasOf, Use
from penstock.admission.accounts import MAXIMUM_ACCOUNTS, Accounts
from penstock.admission.meter import PASS, Check
from penstock.admission.reservation import Reservation
from penstock.admission.shed import Shed
from penstock.api.ratelimits import QuotaScope, QuotaUnit, RateLimit
from penstock.api.tenants import TenantClass, TenantLimits, TenantsPolicy

UNKNOWN_TENANT = "default"
"""What all callers are called together that are no tenant."""

_CONNECTION = Use(requests=1, prompt_tokens=0, output_tokens=0)
_EVERYONE = TenantLimits()


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota as a client sees it: who keeps to `remaining` and `reset_seconds` is not refused by it.

    Attributes:
        name: The quota's name.
        unit: What it counts.
        scope: Who shares it; only of what nobody shares can a client be certain.
        limit: What may pass at once when everything is there; the part of this replica.
        remaining: What may pass now, at most `limit`.
        reset_seconds: Time until `limit` may pass, if nothing passes before.
        window_seconds: The window that the configured limit is about.
    """

    name: str
    unit: QuotaUnit
    scope: QuotaScope
    limit: int
    remaining: int
    reset_seconds: float
    window_seconds: int


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """Why something may not pass now.

    Attributes:
        name, unit, scope: The quota that it would have to wait for the longest.
        wait_seconds: Time until this very request would pass if nothing passed before; `inf` for never.
        view: All quotas that apply to it.
    """

    name: str
    unit: QuotaUnit
    scope: QuotaScope
    wait_seconds: float
    view: tuple[QuotaView, ...]

    @property
    def shed(self) -> Shed:
        """Why it is refused: what is larger than a quota ever lets pass asks again in vain."""
        return Shed.NEVER_FITS if isinf(self.wait_seconds) else Shed.QUOTA


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
        self, tenant: str, address: str, *, requests: int, prompt_tokens: int, output_tokens: int, now: float
    ) -> Reservation | QuotaRefusal:
        """Charge a request to every quota that applies, or say why it may not pass; then nothing is charged."""
        holders = self._holders(tenant, address, now)
        use = Use(requests, prompt_tokens, output_tokens)
        charges = []
        delay_seconds = 0.0
        worst: tuple[Counted, Check] | None = None
        for account in (self._replica, self._backend, *(account for _, account in holders)):
            for counted in account.requests:
                cost = counted.cost(use)
                check = counted.meter.check(cost, now)
                if check is not PASS:
                    delay_seconds = max(delay_seconds, check.delay_seconds)
                    worst = _longer(worst, counted, check)
                charges.append((counted, cost))
        if worst is not None:
            return _refusal(worst, charges, now)
        for counted, cost in charges:
            counted.meter.charge(cost, now)
        for accounts, account in holders:
            accounts.open(account, now)
        return Reservation(charges, holders, use=use, delay_seconds=delay_seconds, now=now)

    def connect(self, address: str, now: float) -> float | QuotaRefusal:
        """Charge a connection, and return how many seconds to wait before serving it, or why it may not be had."""
        holder = self._addresses.of(address, now)
        counted = [*self._replica.connections, *self._backend.connections, *(holder.connections if holder else ())]
        delay_seconds = 0.0
        worst: tuple[Counted, Check] | None = None
        for one in counted:
            check = one.meter.check(one.cost(_CONNECTION), now)
            delay_seconds = max(delay_seconds, check.delay_seconds)
            worst = _longer(worst, one, check)
        if worst is not None:
            return _refusal(worst, ((one, 1) for one in counted), now)
        for one in counted:
            one.meter.charge(one.cost(_CONNECTION), now)
        if holder is not None and holder.connections:
            self._addresses.charged(holder, now)
        return delay_seconds

    def view(self, tenant: str, address: str, now: float) -> tuple[QuotaView, ...]:
        """Return what is left of each quota that applies to the requests of a tenant from an address."""
        accounts = (self._replica, self._backend, *(account for _, account in self._holders(tenant, address, now)))
        return tuple(_view(counted, now) for account in accounts for counted in account.requests)

    def _holders(self, tenant: str, address: str, now: float) -> list[tuple[Accounts, Account]]:
        """Return the accounts that requests of a tenant from an address are counted in, besides those of all."""
        holders = []
        for accounts, key in ((self._tenants, tenant), (self._addresses, address)):
            account = accounts.of(key, now)
            if account is not None and account.requests:
                holders.append((accounts, account))
        return holders

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


def _longer(worst: tuple[Counted, Check] | None, counted: Counted, check: Check) -> tuple[Counted, Check] | None:
    """Return whichever has to be waited for longer; None if nothing has."""
    least = worst[1].wait_seconds if worst else 0.0
    return (counted, check) if check.wait_seconds > least else worst


def _refusal(worst: tuple[Counted, Check], charges: Iterable[tuple[Counted, int]], now: float) -> QuotaRefusal:
    counted, check = worst
    quota = counted.quota
    view = tuple(_view(one, now) for one, _ in charges)
    return QuotaRefusal(name=quota.name, unit=quota.unit, scope=quota.per, wait_seconds=check.wait_seconds, view=view)


def _view(counted: Counted, now: float) -> QuotaView:
    quota, meter = counted.quota, counted.meter
    return QuotaView(
        name=quota.name,
        unit=quota.unit,
        scope=quota.per,
        limit=counted.shown,
        remaining=min(counted.shown, meter.remaining(now)),
        reset_seconds=meter.reset_seconds(now),
        window_seconds=quota.window_seconds,
    )
