"""Fields that limiters read again while they run: they are in the policy file, and no change of them touches a pod."""

from tests.resources.fields import Field, group

QUOTA = {"name": "q", "limit": 10}
TENANTS = {"default": {}}


def _class(**one: object) -> dict:
    return {"admission": {"priorityClasses": [{"name": "normal", **one}]}}


def _quota(**quota: object) -> dict:
    return {"admission": {"rateLimits": [{**QUOTA, **quota}]}}


QUOTA_FIELDS = {"unit": "Tokens", "algorithm": "FixedWindow", "windowSeconds": 5, "burst": 20}

ADMISSION = (
    *group(
        "admission.",
        "policy: admission.",
        {
            "mode": "Shadow",
            "concurrency.initial": 2,
            "concurrency.minimum": 2,
            "concurrency.maximum": 3,
            "queue.maxRequests": 5,
            "queue.maxWaitSeconds": 5,
            "overloadStatus": "TooManyRequests",
            "adaptive.mode": "Fixed",
            "adaptive.targets.waitingRequests": 5,
            "adaptive.targets.kvCachePercent": 50,
            "adaptive.targets.timeToFirstTokenMilliseconds": 500,
            "adaptive.maximumUtilizationPercent": 70,
            "retryBudgetPercent": 5,
        },
        rolls=False,
    ),
    Field(
        path="admission.priorityClasses[].name",
        value="high",
        instead="low",
        within={"admission": {"priorityClasses": [{"name": "low"}, {"name": "normal"}]}},
        where="policy: admission.priorityClasses[0].name",
        rolls=False,
    ),
    *group(
        "admission.priorityClasses[].",
        "policy: admission.priorityClasses[0].",
        {"ceilingPercent": 50, "reservedPercent": 10, "sheddable": True, "maxWaitSeconds": 5},
        rolls=False,
        within=_class(),
    ),
    Field(
        path="admission.rateLimits[].name",
        value="other",
        instead="q",
        within=_quota(),
        where="policy: admission.rateLimits[0].name",
        rolls=False,
    ),
    Field(
        path="admission.rateLimits[].limit",
        value=20,
        instead=10,
        within=_quota(),
        where="policy: admission.rateLimits[0].limit",
        rolls=False,
    ),
    *group(
        "admission.rateLimits[].",
        "policy: admission.rateLimits[0].",
        {**QUOTA_FIELDS, "per": "Address"},
        rolls=False,
        within=_quota(),
    ),
    Field(
        path="admission.sharedStore.redis.url",
        value="redis://b:6379",
        instead="redis://a:6379",
        where="policy: sharedStoreUrl",
        rolls=False,
    ),
)

PEOPLE = (
    Field(
        path="tenants.identifyBy",
        value="ClientAddress",
        within={"tenants": TENANTS},
        where="policy: tenants.identifyBy",
        rolls=False,
    ),
    Field(
        path="tenants.header",
        value="x-team",
        instead="x-tenant",
        within={"tenants": {"identifyBy": "Header", "trustedProxies": ["10.0.0.0/8"]}},
        where="policy: tenants.header",
        rolls=False,
    ),
    Field(
        path="tenants.trustedProxies[]",
        value="10.0.0.0/8",
        within={"tenants": TENANTS},
        where="policy: tenants.trustedProxies[0]",
        rolls=False,
    ),
    *(
        row
        for block, base in (("default", {}), ("classes[]", {"name": "a", "tenants": ["t"]}))
        for seen in (block.replace("[]", "[0]"),)
        for within in ({"tenants": {"default": {}, block.removesuffix("[]"): [base] if "[]" in block else base}},)
        for quotas in (
            {"tenants": {"default": {}, block.removesuffix("[]"): [base | {"rateLimits": [QUOTA]}]}}
            if "[]" in block
            else {"tenants": {"default": {"rateLimits": [QUOTA]}}},
        )
        for row in (
            *group(
                f"tenants.{block}.",
                f"policy: tenants.{seen}.",
                {"weight": 3, "priorityClass": "batch", "allowedPriorityClasses[]": "interactive"},
                rolls=False,
                within=within,
            ),
            *group(
                f"tenants.{block}.rateLimits[].",
                f"policy: tenants.{seen}.rateLimits[0].",
                QUOTA_FIELDS,
                rolls=False,
                within=quotas,
            ),
            Field(
                path=f"tenants.{block}.rateLimits[].name",
                value="other",
                instead="q",
                within=quotas,
                where=f"policy: tenants.{seen}.rateLimits[0].name",
                rolls=False,
            ),
            Field(
                path=f"tenants.{block}.rateLimits[].limit",
                value=20,
                instead=10,
                within=quotas,
                where=f"policy: tenants.{seen}.rateLimits[0].limit",
                rolls=False,
            ),
        )
    ),
    Field(
        path="tenants.classes[].name",
        value="b",
        instead="a",
        within={"tenants": {"default": {}, "classes": [{"name": "a", "tenants": ["t"]}]}},
        where="policy: tenants.classes[0].name",
        rolls=False,
    ),
    Field(
        path="tenants.classes[].tenants[]",
        value="u-*",
        instead="t",
        within={"tenants": {"default": {}, "classes": [{"name": "a", "tenants": ["t"]}]}},
        where="policy: tenants.classes[0].tenants[0]",
        rolls=False,
    ),
)

RUNNING = (
    Field(path="limiter.logLevel", value="Debug", where="policy: logLevel", rolls=False),
    Field(path="limiter.maximumBodyMebibytes", value=8, where="policy: maximumBodyMebibytes", rolls=False),
    *group(
        "resilience.",
        "policy: resilience.",
        {
            "retries.maximum": 2,
            "breaker.consecutiveFailures": 2,
            "breaker.openSeconds": 2,
            "breaker.maximumOpenSeconds": 30,
            "breaker.halfOpenProbes": 2,
            "breaker.successesToClose": 3,
            "spillover": "Disabled",
            "fallback[].name": "other",
            "streamRecovery": "Resume",
        },
        rolls=False,
    ),
    *group("health.", "policy: health.", {"stallTimeoutSeconds": 30, "warmup": "Embeddings"}, rolls=False),
)
