"""`spec.tenants`: who the callers are, and what each of them may have.

A tenant's class is named here and not in the Secret with the keys, so that it can be reviewed and changed without
touching a secret. `TenantsPolicy` is what the limiter reads from its policy file; the keys are mounted beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from penstock.api.admission import MAXIMUM_CLASSES, NORMAL
from penstock.api.annotations import Cidr, ListMap, Matches
from penstock.api.base import ApiModel, Rule, cel_text
from penstock.api.kubernetes import LabelName, SecretReference
from penstock.api.ratelimits import MAXIMUM_QUOTAS, QuotaScope, RateLimit, TenantQuota

_SET_BY_OTHERS = (
    "(?i)^(authorization|connection|content-.*|cookie|forwarded|host|transfer-encoding|x-api-key|x-forwarded-.*|"
    "x-penstock-.*|x-request-id)$"
)

TenantPattern = Annotated[
    str,
    Field(max_length=253),
    Matches(
        r"^[A-Za-z0-9_.:@/-]+\*?$|^\*$",
        "must be a tenant's name, or its beginning with a `*` at the end, such as team-*",
    ),
]
"""A tenant's name as the Secret, the header or the address gives it, or the beginning of several."""


class IdentifyBy(StrEnum):
    """What tells one caller from another."""

    API_KEY = "ApiKey"
    """The key in `Authorization` or `x-api-key`."""

    HEADER = "Header"
    """A header that a trusted proxy sets."""

    CLIENT_ADDRESS = "ClientAddress"
    """The client's address."""


class TenantLimits(ApiModel):
    """What each tenant gets."""

    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Share of the engine's work among tenants that wait. Default: 1."""

    priority_class: LabelName = NORMAL
    """Priority class of its requests. Default: normal."""

    allowed_priority_classes: Annotated[tuple[LabelName, ...], Field(max_length=MAXIMUM_CLASSES)] = ()
    """Further classes it may choose with the header `x-penstock-priority`. Default: none."""

    rate_limits: Annotated[tuple[TenantQuota, ...], Field(max_length=MAXIMUM_QUOTAS), ListMap("name")] = ()
    """Quotas of each of these tenants. One replaces the entry of `admission.rateLimits` that has its name and
    `per: Tenant`."""

    @property
    def named_classes(self) -> frozenset[str]:
        """Return the priority classes that these tenants may be served in."""
        return frozenset((self.priority_class, *self.allowed_priority_classes))

    def quotas(self, general: Iterable[RateLimit]) -> tuple[RateLimit, ...]:
        """Return the quotas of each tenant: its own, and those of the backend that it does not replace.

        Args:
            general: The backend's `admission.rateLimits`; those that are not per tenant are left out.
        """
        own = tuple(RateLimit(per=QuotaScope.TENANT, **dict(quota)) for quota in self.rate_limits)
        replaced = {quota.name for quota in own}
        kept = (limit for limit in general if limit.per is QuotaScope.TENANT and limit.name not in replaced)
        return (*own, *kept)


class TenantClass(TenantLimits):
    """Tenants that get the same."""

    name: LabelName
    """Name of the class."""

    tenants: Annotated[tuple[TenantPattern, ...], Field(min_length=1, max_length=256)]
    """The tenants in it, by name; a `*` at the end stands for any rest."""


class TenantsPolicy(ApiModel):
    """Who the callers are, and what each may have; changes need no restart."""

    identify_by: IdentifyBy = IdentifyBy.API_KEY
    """`ApiKey` (default), `Header` (set by a trusted proxy) or `ClientAddress`."""

    header: (
        Annotated[
            str,
            Field(max_length=64),
            Matches(r"^[A-Za-z][A-Za-z0-9-]*$", "must be a header's name: letters, digits and `-`, such as x-tenant"),
        ]
        | None
    ) = None
    """Header that names the tenant, with `identifyBy: Header`."""

    trusted_proxies: Annotated[tuple[Cidr, ...], Field(max_length=64)] = ()
    """Networks whose identity headers, `x-penstock-priority` and X-Forwarded-For count, such as 10.0.0.0/8: proxies
    that strip these from their clients. Default: none."""

    default: TenantLimits | None = None
    """What callers get who are in no class, unknown ones included. Without it unknown callers get 401."""

    classes: Annotated[tuple[TenantClass, ...], Field(max_length=32), ListMap("name")] = ()
    """Tenants that get the same."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.identifyBy != 'Header' || has(self.header)",
            message="`identifyBy: Header` needs `header`, the header that names the tenant",
            holds=lambda tenants: tenants.identify_by is not IdentifyBy.HEADER or tenants.header is not None,
            field="identifyBy",
        ),
        Rule(
            cel="self.identifyBy != 'Header' || (has(self.trustedProxies) && self.trustedProxies.size() > 0)",
            message="`identifyBy: Header` needs `trustedProxies`: from anyone else the header is not believed",
            holds=lambda tenants: tenants.identify_by is not IdentifyBy.HEADER or bool(tenants.trusted_proxies),
            field="identifyBy",
        ),
        Rule(
            cel="!has(self.header) || self.identifyBy == 'Header'",
            message="`header` belongs to `identifyBy: Header`; remove it or change `identifyBy`",
            holds=lambda tenants: tenants.header is None or tenants.identify_by is IdentifyBy.HEADER,
            field="header",
        ),
        Rule(
            cel=f"!has(self.header) || !self.header.matches({cel_text(_SET_BY_OTHERS)})",
            message="this header has another meaning; let the proxy set one of its own, such as x-tenant",
            holds=lambda tenants: tenants.header is None or re.fullmatch(_SET_BY_OTHERS, tenants.header) is None,
            field="header",
        ),
    )

    def limits_of(self, tenant: str) -> TenantLimits:
        """Return what a tenant gets: its class by name, else by the longest beginning, else the default."""
        best: tuple[int, TenantLimits] = (-1, self.default or TenantLimits())
        for one in self.classes:
            for pattern in one.tenants:
                if pattern == tenant:
                    return one
                if pattern.endswith("*") and tenant.startswith(pattern[:-1]) and len(pattern) > best[0]:
                    best = (len(pattern), one)
        return best[1]


class TenantsSpec(TenantsPolicy):
    """Who the callers are, and what each may have; changes need no restart."""

    keys_secret_ref: SecretReference | None = None
    """Secret with one entry per tenant: its API keys, one per line. Mounted into the limiter only."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *TenantsPolicy.rules,
        Rule(
            cel="self.identifyBy != 'ApiKey' || has(self.keysSecretRef) || has(self.default)",
            message="`identifyBy: ApiKey` needs `keysSecretRef`, or `default` to let everyone in",
            holds=lambda tenants: (
                tenants.identify_by is not IdentifyBy.API_KEY
                or tenants.keys_secret_ref is not None
                or tenants.default is not None
            ),
            field="identifyBy",
        ),
        Rule(
            cel="self.identifyBy == 'ApiKey' || !has(self.keysSecretRef)",
            message="`keysSecretRef` belongs to `identifyBy: ApiKey`; remove it or change `identifyBy`",
            holds=lambda tenants: tenants.identify_by is IdentifyBy.API_KEY or tenants.keys_secret_ref is None,
            field="keysSecretRef",
        ),
    )
