"""The workload: how many replicas run, from which pod template, and how one set of them is replaced by the next.

The template is an input. It is kept while the pod-relevant part of a spec stays the same, so a new release of Penstock
that would render it differently replaces no pod; what stands beside it here may change at any time.
"""

from __future__ import annotations

import copy
from typing import Final

from penstock.api.backend import LLMBackend
from penstock.api.rollout import RolloutStrategy
from penstock.resources.engine import CONTAINER
from penstock.resources.labels import metadata, selector
from penstock.resources.objects import Object
from penstock.resources.pod import grace_period_seconds, template

__all__ = ["CONTAINER", "REVISION_ANNOTATION", "build", "name", "template"]

REVISION_ANNOTATION = "serving.penstock.dev/revision"
"""On the Deployment, never on its pods: names the ControllerRevision that holds the template."""

PROGRESS_MARGIN_SECONDS = 600

SURGE = {"maxSurge": 1, "maxUnavailable": 0}
IN_PLACE = {"maxSurge": 0, "maxUnavailable": 1}

STRATEGIES: Final = {
    # A new replica first loses nothing, whatever happens to it.
    RolloutStrategy.AUTO: SURGE,
    RolloutStrategy.SURGE: SURGE,
    RolloutStrategy.IN_PLACE: IN_PLACE,
}


def name(backend: LLMBackend) -> str:
    """Return the Deployment's name."""
    return backend.metadata.name


def build(backend: LLMBackend, template: Object, *, revision: str = "") -> Object:
    """Return the Deployment.

    Args:
        backend: What is wanted.
        template: The pod template to run, as `template()` has rendered it now or earlier.
        revision: Name of the ControllerRevision that holds the template; empty where none does.
    """
    rollout = backend.spec.rollout
    meta = metadata(backend, name(backend))
    if revision:
        meta["annotations"] = {REVISION_ANNOTATION: revision}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": backend.spec.wanted_replicas,
            # Named, so that an apply takes a pause back: a paused Deployment never rolls, and nothing would say why.
            "paused": False,
            "selector": {"matchLabels": selector(backend)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": dict(STRATEGIES[rollout.strategy])},
            "progressDeadlineSeconds": rollout.progress_deadline_seconds or _default_progress_deadline_seconds(backend),
            # A copy: what is kept must not change with what is applied.
            "template": copy.deepcopy(template),
        },
    }


def _default_progress_deadline_seconds(backend: LLMBackend) -> int:
    """A new pod may use its whole startup budget, and its place may be free only after an old one has drained.

    A download is given as much time again as the engine has to load what was downloaded.
    """
    spec = backend.spec
    loads = 1 if spec.model.source.hugging_face is None else 2
    return loads * spec.startup_seconds + grace_period_seconds(backend) + PROGRESS_MARGIN_SECONDS
