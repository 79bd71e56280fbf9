"""The pod template: one replica, the engine behind its limiter.

The order of events at the end of a replica: kubelet calls the engine's preStop hook, the limiter answers it when
nothing is in flight any more, the engine gets SIGTERM and ends, then the limiter gets SIGTERM and ends. The grace
period is the sum of what these steps may take.
"""

from __future__ import annotations

import hashlib

from penstock.api.backend import LLMBackend
from penstock.engines.engine import for_type
from penstock.resources import download, engine, limiter, scheduling, security, serviceaccount, volumes
from penstock.resources.facts import ClusterFacts
from penstock.resources.labels import labels
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings

GRACE_MARGIN_SECONDS = 10
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"
"""What kubectl and other tools show of a pod unless asked for another container."""


def template(backend: LLMBackend, settings: BuildSettings, facts: ClusterFacts) -> Object:  # noqa: ARG001
    """Return the pod template as it is rendered now, labels and annotations included."""
    backend = settings.with_image(backend)
    pod = backend.spec.pod
    return {
        "metadata": {
            # The API refuses Penstock's own keys; should one slip through, the selector still finds its pods.
            "labels": {**(pod.labels or {}), **labels(backend)},
            "annotations": {**(pod.annotations or {}), DEFAULT_CONTAINER_ANNOTATION: engine.CONTAINER},
        },
        "spec": _spec(backend, settings),
    }


def grace_period_seconds(backend: LLMBackend) -> int:
    """Return how long a replica may take to leave: lame duck, running requests, the engine's own end, and a margin."""
    served_by = for_type(backend.spec.engine.type)
    drain = backend.spec.drain
    stop_seconds = served_by.stop_seconds(served_by.version_of(backend.spec))
    return drain.lame_duck_seconds + drain.timeout_seconds + stop_seconds + GRACE_MARGIN_SECONDS


def _spec(backend: LLMBackend, settings: BuildSettings) -> Object:
    token = settings.drain_token(backend.metadata.uid)
    token_sha256 = hashlib.sha256(token.encode()).hexdigest()
    # The download comes first: nothing else in the pod has anything to do before it.
    downloads = [container for container in (download.init_container(backend, settings),) if container is not None]
    pod: Object = {
        "serviceAccountName": serviceaccount.name(backend),
        "automountServiceAccountToken": False,
        # A Service called `vllm` would otherwise put VLLM_PORT=tcp://... into the engine's environment.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_period_seconds(backend),
        "securityContext": security.pod(backend, platform=settings.platform),
        "initContainers": [
            *downloads,
            limiter.build(backend, settings=settings, drain_token_sha256=token_sha256),
        ],
        "containers": [engine.build(backend, platform=settings.platform, drain_token=token)],
        "volumes": volumes.pod(backend),
        **scheduling.build(backend),
    }
    if for_type(backend.spec.engine.type).facts.share_process_namespace:
        pod["shareProcessNamespace"] = True
    return pod
