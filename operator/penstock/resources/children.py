"""All children of a backend, in the order in which they are applied: identity and configuration before the workload."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.errors import Problem
from penstock.engines.engine import for_type
from penstock.resources import (
    configmap,
    deployment,
    disruption,
    headless,
    model,
    networkpolicy,
    podmonitor,
    service,
    serviceaccount,
)
from penstock.resources.facts import UNKNOWN, ClusterFacts
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings


def check(backend: LLMBackend, facts: ClusterFacts = UNKNOWN) -> list[Problem]:
    """Return what the API server cannot see in a spec and no children can be built from."""
    return [*for_type(backend.spec.engine.type).check(backend.spec), *model.check(backend, facts)]


def build(
    backend: LLMBackend,
    settings: BuildSettings,
    facts: ClusterFacts,
    template: Object,
    *,
    revision: str = "",
) -> tuple[Object, ...]:
    """Return the children as they are applied; the same input always gives equal objects.

    Args:
        backend: What is wanted.
        settings: The operator's own contribution.
        facts: What is known of the cluster.
        template: The pod template to run: `deployment.template()`, or an earlier one that is kept.
        revision: Name of the ControllerRevision that holds the template; empty where none does.
    """
    children = (
        serviceaccount.build(backend),
        configmap.build(backend, settings),
        # Before the workload: pods are not open to all for a moment.
        networkpolicy.build(backend, settings),
        service.build(backend),
        headless.build(backend),
        disruption.build(backend),
        podmonitor.build(backend, facts),
        deployment.build(backend, template, revision=revision),
    )
    return tuple(child for child in children if child is not None)
