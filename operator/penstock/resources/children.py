"""All children of a backend, in the order in which they are applied: identity and configuration before the workload."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.errors import Problem
from penstock.engines.engine import for_type
from penstock.resources import configmap, deployment, service, serviceaccount
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings


def check(backend: LLMBackend) -> list[Problem]:
    """Return what the API server cannot see in a spec and no children can be built from."""
    return for_type(backend.spec.engine.type).check(backend.spec)


def build(backend: LLMBackend, settings: BuildSettings) -> tuple[Object, ...]:
    """Return the children as they are applied; the same input always gives equal objects."""
    return (
        serviceaccount.build(backend),
        configmap.build(backend),
        service.build(backend),
        deployment.build(backend, settings),
    )
