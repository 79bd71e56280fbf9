"""Which limits a tenant gets."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.backend import LLMBackend
from penstock.api.ratelimits import QuotaScope
from penstock.api.tenants import TenantLimits, TenantsSpec
from tests.api.examples import backend

CLASSES = [
    {"name": "teams", "tenants": ["team-*"], "weight": 2},
    {"name": "search", "tenants": ["team-search-*", "crawler"], "weight": 3},
    {"name": "one", "tenants": ["team-search-eu"], "weight": 4},
]


def tenants(**parts: Any) -> TenantsSpec:
    """Return a spec's tenants."""
    found = LLMBackend.parse(backend(tenants={"keysSecretRef": {"name": "k"}, **parts})).spec.tenants
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("tenant", "weight"),
    [
        ("crawler", 3),
        ("team-search-eu", 4),
        ("team-search-us", 3),
        ("team-billing", 2),
        ("team-", 2),
        ("team", 9),
        ("someone", 9),
    ],
    ids=[
        "its name",
        "its name before any beginning",
        "the longest beginning",
        "a beginning",
        "nothing more",
        "less",
        "no class",
    ],
)
def test_a_tenant_is_in_the_class_that_names_it_best(tenant: str, weight: int) -> None:
    assert tenants(classes=CLASSES, default={"weight": 9}).limits_of(tenant).weight == weight


def test_a_tenant_in_no_class_gets_the_least_where_no_default_is_given() -> None:
    limits = tenants(classes=CLASSES).limits_of("someone")
    assert limits == TenantLimits()
    assert (limits.weight, limits.priority_class, limits.rate_limits) == (1, "normal", ())


def test_a_quota_of_a_class_replaces_the_backends_quota_of_the_same_name() -> None:
    spec = LLMBackend.parse(
        backend(
            admission={
                "rateLimits": [
                    {"name": "requests", "limit": 10, "per": "Tenant"},
                    {"name": "tokens", "limit": 99, "per": "Tenant", "unit": "Tokens"},
                    {"name": "all", "limit": 1000},
                ]
            },
            tenants={
                "keysSecretRef": {"name": "k"},
                "classes": [{"name": "gold", "tenants": ["acme"], "rateLimits": [{"name": "requests", "limit": 50}]}],
            },
        )
    ).spec
    assert spec.tenants is not None
    general = spec.admission.rate_limits
    assert [(quota.name, quota.limit) for quota in spec.tenants.limits_of("acme").quotas(general)] == [
        ("requests", 50),
        ("tokens", 99),
    ]
    assert [(quota.name, quota.limit) for quota in spec.tenants.limits_of("other").quotas(general)] == [
        ("requests", 10),
        ("tokens", 99),
    ]
    assert {quota.per for quota in spec.tenants.limits_of("acme").quotas(general)} == {QuotaScope.TENANT}


@pytest.mark.parametrize(("burst", "capacity"), [(None, 10), (3, 3), (30, 30)])
def test_a_bucket_holds_a_window_unless_told_otherwise(burst: int | None, capacity: int) -> None:
    quota = {"name": "a", "limit": 10} | ({} if burst is None else {"burst": burst})
    (found,) = LLMBackend.parse(backend(admission={"rateLimits": [quota]})).spec.admission.rate_limits
    assert found.capacity == capacity
