"""What is wrong with a spec beyond what the API server can be told to see: each problem with its field and a way out.

CEL cannot add up quantities or compare long lists with each other at a bearable cost. An object with one of these
problems is stored, is Stalled with reason InvalidSpec, and gets no children.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from penstock.api.affinity import Affinity
from penstock.api.errors import Problem
from penstock.api.kubernetes import Resources
from penstock.api.quantity import amount
from penstock.api.spec import LLMBackendSpec

MEBIBYTE: Final = 2**20

BODY_PERCENT = 40
"""Share of the limiter's memory limit that request bodies may take together."""

LEAST_LIMITER_MEMORY_MEBIBYTES = 64
"""Below this the limiter does not start."""

_PLAIN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_QUOTA = "requests."
_HUGE_PAGES = "hugepages-"


def check(spec: LLMBackendSpec) -> list[Problem]:
    """Return everything in a spec that cannot work whatever the engine, in the order of the fields."""
    return [
        *_resources("spec.resources", spec.resources),
        *_memory(spec),
        *_affinity(spec),
        *_resources("spec.limiter.resources", spec.limiter.resources),
        *_limiter_memory(spec),
        *_tenants(spec),
    ]


def _resources(field: str, resources: Resources) -> Iterator[Problem]:
    """Yield what every API server refuses in a container's resources, under the path the user knows."""
    requests, limits = resources.requests or {}, resources.limits or {}
    for part, amounts in (("requests", requests), ("limits", limits)):
        for name, text in amounts.items():
            path = f"{field}.{part}.{name}"
            if name.startswith(_QUOTA):
                yield Problem(path, f"`{name}` is a name of quotas; write the device itself, such as nvidia.com/gpu")
            elif "/" in name:
                if amount(text) % 1:
                    yield Problem(path, f"`{text}` is no whole number; devices cannot be divided")
            elif name not in _PLAIN_RESOURCES and not name.startswith(_HUGE_PAGES):
                yield Problem(path, f"`{name}` is no resource; write cpu, memory, or a device such as nvidia.com/gpu")
    for name, text in requests.items():
        limit = limits.get(name)
        path = f"{field}.requests.{name}"
        if "/" in name and (limit is None or amount(limit) != amount(text)):
            yield Problem(path, "devices are asked for by their limit; remove the request or make both equal")
        elif limit is not None and amount(text) > amount(limit):
            yield Problem(path, f"`{text}` is more than the limit `{limit}`; raise the limit or lower the request")


def _memory(spec: LLMBackendSpec) -> Iterator[Problem]:
    """Yield what takes more memory than the engine container may have."""
    limit = _memory_limit(spec.resources)
    if limit is None:
        return
    cache = spec.engine.llama_cpp.cache_ram_mebibytes if spec.engine.llama_cpp else 0
    parts = {
        "spec.engine.llamaCpp.cacheRamMebibytes": cache,
        "spec.pod.sharedMemoryMebibytes": spec.pod.shared_memory_mebibytes or 0,
    }
    for field, mebibytes in parts.items():
        if mebibytes * MEBIBYTE >= limit:
            yield Problem(field, "it counts against the memory limit in `spec.resources`, which is not larger")


def _affinity(spec: LLMBackendSpec) -> Iterator[Problem]:
    """Yield keys that pods cannot be compared by: the CRD would have to say it four times."""
    affinity = spec.pod.affinity or Affinity()
    for name, kind in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        for path, term in kind.terms() if kind else ():
            field = f"spec.pod.affinity.{name}.{path}"
            same, other = set(term.match_label_keys or ()), set(term.mismatch_label_keys or ())
            if (same or other) and term.label_selector is None:
                yield Problem(f"{field}.labelSelector", "write it; `matchLabelKeys` and `mismatchLabelKeys` narrow it")
            for key in sorted(same & other):
                yield Problem(f"{field}.mismatchLabelKeys", f"`{key}` is in `matchLabelKeys` too; remove one of them")


def _limiter_memory(spec: LLMBackendSpec) -> Iterator[Problem]:
    limit = _memory_limit(spec.limiter.resources)
    if limit is None:
        return
    if limit < LEAST_LIMITER_MEMORY_MEBIBYTES * MEBIBYTE:
        yield Problem(
            "spec.limiter.resources.limits.memory",
            f"the limiter needs {LEAST_LIMITER_MEMORY_MEBIBYTES}Mi or more",
        )
    elif spec.limiter.maximum_body_mebibytes * MEBIBYTE * 100 > limit * BODY_PERCENT:
        yield Problem(
            "spec.limiter.maximumBodyMebibytes",
            f"all bodies together may take {BODY_PERCENT} % of the memory limit in `spec.limiter.resources`, and one "
            "would take more; raise that limit",
        )


def _tenants(spec: LLMBackendSpec) -> Iterator[Problem]:
    """Yield networks that are none, and tenants that are named by two classes."""
    if spec.tenants is None:
        return
    for index, network in enumerate(spec.tenants.trusted_proxies):
        if not _is_network(network):
            field = f"spec.tenants.trustedProxies[{index}]"
            yield Problem(field, f"`{network}` is no network; write one such as 10.0.0.0/8 or fd00::/8")
    seen: dict[str, str] = {}
    for index, one in enumerate(spec.tenants.classes):
        for position, tenant in enumerate(one.tenants):
            other = seen.setdefault(tenant, one.name)
            if other != one.name:
                field = f"spec.tenants.classes[{index}].tenants[{position}]"
                yield Problem(field, f"`{tenant}` is in class `{other}` already; a tenant has one class")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _memory_limit(resources: Resources) -> Decimal | None:
    text = (resources.limits or {}).get("memory")
    return None if text is None else amount(text)
