"""The part of a spec that its pods depend on, as one short hash: pods are replaced when it changes, else never.

The hash outlives releases of Penstock: it is stored in the cluster beside the template that was rendered for it, and
another release must find the same hash for the same spec. Hence these rules.

- `NOT_POD_BOUND` is the only place that says what pods do not depend on. A field it does not name counts.
- A value that equals its field's first default is left out, so a release may add a field. The first default counts, not
  the present one: the API server writes defaults into objects, so an old object keeps the value that was the default
  when it was written. A release that changes the default of a field puts the former one into `FIRST_DEFAULTS`.
- The order of keys means nothing. The order of lists does, as it does in a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from penstock.api.backend import LLMBackend
from penstock.resources.digest import digest

NOT_POD_BOUND = frozenset(
    {
        # How many replicas, and how one set of them follows another.
        "replicas",
        "suspend",
        "paused",
        "rollout",
        "upgradePolicy",
        # Other children.
        "service",
        "disruption",
        "monitoring",
        "networkPolicy",
        # What limiters read again while they run.
        "limiter.logLevel",
        "limiter.maximumBodyMebibytes",
        "admission",
        "resilience",
        "tenants",
        "health.stallTimeoutSeconds",
        "health.warmup",
    }
)
"""Fields, with all below them, that change while pods run."""

POD_BOUND_BELOW = frozenset({"admission.sharedStore.redis.secretRef", "tenants.keysSecretRef"})
"""The exceptions below these fields: Secrets that are mounted into the pod."""

FIRST_DEFAULTS: Mapping[str, Any] = {}
"""Defaults of the release that brought a field, by path, where the present default is another."""

HASH_DIGITS = 16

_ABOVE_EXCEPTIONS = frozenset(
    ".".join(steps[:length])
    for steps in (path.split(".") for path in POD_BOUND_BELOW)
    for length in range(1, len(steps))
)
_REQUIRED = object()


def pod_spec_hash(backend: LLMBackend) -> str:
    """Return the hash of the pod-relevant spec, the same in every release."""
    return digest(pod_spec(backend), HASH_DIGITS)


def pod_spec(backend: LLMBackend) -> dict[str, Any]:
    """Return the pod-relevant spec as values by path, without those that equal their first default."""
    return {path: value for path, value, default in _leaves(backend.spec, None) if value != default}


def _leaves(
    model: BaseModel, default: BaseModel | None, *, prefix: str = "", bound: bool = True
) -> Iterator[tuple[str, Any, Any]]:
    """Walk through a block and yield path, value and first default of all that is pod-bound and no block itself.

    Args:
        model: The block.
        default: What it is where the user writes nothing; None when the block's own fields say so.
        prefix: Its path, with a dot at the end.
        bound: Whether what is below it counts, if nothing else is said.
    """
    for name, field in type(model).model_fields.items():
        path = f"{prefix}{field.alias or name}"
        counts = (bound and path not in NOT_POD_BOUND) or path in POD_BOUND_BELOW
        if not counts and path not in _ABOVE_EXCEPTIONS:
            continue
        value = getattr(model, name)
        standard = getattr(default, name) if default is not None else _default(field)
        if isinstance(value, BaseModel):
            inner = standard if isinstance(standard, type(value)) else None
            if inner is None and counts:
                # That an optional block is there can mean something even when all in it is default.
                yield path, {}, _REQUIRED if standard is _REQUIRED else None
            yield from _leaves(value, inner, prefix=f"{path}.", bound=counts)
        elif counts:
            yield path, _plain(value, path), FIRST_DEFAULTS.get(path, _plain(standard, path))


def _default(field: FieldInfo) -> Any:  # noqa: ANN401 - any value of a model
    if field.is_required():
        return _REQUIRED
    return field.default if field.default_factory is None else field.get_default(call_default_factory=True)


def _plain(value: Any, path: str) -> Any:  # noqa: ANN401 - any value of a model
    """Return a value as JSON has it; blocks in lists and maps without their own defaults."""
    if value is None or value is _REQUIRED or isinstance(value, bool | int) or type(value) is str:
        return value
    if isinstance(value, BaseModel):
        return {inner: entry for inner, entry, default in _leaves(value, None, prefix=f"{path}[].") if entry != default}
    # Empty and absent mean the same everywhere in the API.
    if isinstance(value, list | tuple):
        return [_plain(entry, path) for entry in value] or None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, path) for key, entry in value.items()} or None
    return to_jsonable_python(value)
