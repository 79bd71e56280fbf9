"""The workload: replicas of the engine, each behind its limiter.

The engine listens on the pod's loopback only, so nothing but the limiter reaches it; its probes and its preStop hook
therefore go to the limiter's admin port, which kubelet can reach. Ports are numbers throughout: named ports of native
sidecars are not resolved by every supported Kubernetes release.

The order of events at the end of a replica: kubelet calls the engine's preStop hook, the limiter answers it when
nothing is in flight any more, the engine gets SIGTERM and ends, then the limiter gets SIGTERM and ends. The grace
period is the sum of what these steps may take.
"""

from __future__ import annotations

import hashlib

from penstock.api.backend import LLMBackend
from penstock.api.replica import ADMIN_PORT, DRAIN_TOKEN_HEADER
from penstock.engines.engine import Engine, for_type
from penstock.resources import limiter, security, serviceaccount, volumes
from penstock.resources.labels import labels, metadata, selector
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings

CONTAINER = "engine"

GRACE_MARGIN_SECONDS = 10
PROBE_GRACE_SECONDS = 10
"""Grace after a failed probe of the engine: kubelet runs the preStop hook then too, and that drain could never end."""

STARTUP_PERIOD_SECONDS = 1
"""Short, since readiness begins only after the startup probe: a longer period would be a delay users wait for."""

LIVENESS_PERIOD_SECONDS = 5
LIVENESS_FAILURES = 24
"""Two minutes in all: the probe goes through the limiter, and kubelet may hold a crashed one back for 80 seconds. A
restarted limiter must not cost the engine its loaded model."""

PROGRESS_MARGIN_SECONDS = 600


def name(backend: LLMBackend) -> str:
    """Return the Deployment's name."""
    return backend.metadata.name


def build(backend: LLMBackend, settings: BuildSettings) -> Object:
    """Return the Deployment."""
    engine = for_type(backend.spec.engine.type)
    grace_seconds = grace_period_seconds(backend)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(backend, name(backend)),
        "spec": {
            "replicas": backend.spec.replicas,
            # Named, so that an apply takes a pause back: a paused Deployment never rolls, and nothing would say why.
            "paused": False,
            "selector": {"matchLabels": selector(backend)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            # A new pod may use its whole startup budget, and its place may be free only after an old one has drained.
            "progressDeadlineSeconds": (
                backend.spec.health.startup_timeout_seconds + grace_seconds + PROGRESS_MARGIN_SECONDS
            ),
            "template": {
                "metadata": {
                    "labels": labels(backend),
                    "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
                },
                "spec": _pod(backend, engine, settings, grace_seconds),
            },
        },
    }


def grace_period_seconds(backend: LLMBackend) -> int:
    """Return how long a replica may take to leave: lame duck, running requests, the engine's own end, and a margin."""
    engine = for_type(backend.spec.engine.type)
    drain = backend.spec.drain
    stop_seconds = engine.stop_seconds(engine.version_of(backend.spec))
    return drain.lame_duck_seconds + drain.timeout_seconds + stop_seconds + GRACE_MARGIN_SECONDS


def _pod(backend: LLMBackend, engine: Engine, settings: BuildSettings, grace_seconds: int) -> Object:
    token = settings.drain_token(backend.metadata.uid)
    token_sha256 = hashlib.sha256(token.encode()).hexdigest()
    pod: Object = {
        "serviceAccountName": serviceaccount.name(backend),
        "automountServiceAccountToken": False,
        # A Service called `vllm` would otherwise put VLLM_PORT=tcp://... into the engine's environment.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds,
        "securityContext": security.pod(group_id=engine.facts.group_id),
        "initContainers": [
            limiter.build(backend, image=settings.limiter_image, drain_token_sha256=token_sha256),
        ],
        "containers": [_engine(backend, engine, token)],
        "volumes": volumes.pod(backend),
    }
    if engine.facts.share_process_namespace:
        pod["shareProcessNamespace"] = True
    return pod


def _engine(backend: LLMBackend, engine: Engine, token: str) -> Object:
    spec = backend.spec
    version = engine.version_of(spec)
    command = engine.command()
    return {
        "name": CONTAINER,
        "image": engine.image(spec),
        **({"command": command} if command else {}),
        "args": engine.args(spec, version, spec.model.source.path_in_container),
        "env": [variable.to_dict() for variable in engine.environment(spec, version)],
        "resources": spec.resources.to_dict(),
        "startupProbe": {
            "httpGet": {"path": "/engine/started", "port": ADMIN_PORT},
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "timeoutSeconds": 3,
            "failureThreshold": spec.health.startup_timeout_seconds // STARTUP_PERIOD_SECONDS,
            "terminationGracePeriodSeconds": PROBE_GRACE_SECONDS,
        },
        "livenessProbe": {
            "httpGet": {"path": "/engine/alive", "port": ADMIN_PORT},
            "periodSeconds": LIVENESS_PERIOD_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": LIVENESS_FAILURES,
            "terminationGracePeriodSeconds": PROBE_GRACE_SECONDS,
        },
        "lifecycle": {
            "preStop": {
                "httpGet": {
                    "path": "/drain",
                    "port": ADMIN_PORT,
                    "httpHeaders": [{"name": DRAIN_TOKEN_HEADER, "value": token}],
                },
            },
        },
        "securityContext": security.container(user_id=engine.facts.user_id, group_id=engine.facts.group_id),
        # The last lines of the log become the termination message, which status shows when the engine crashes.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volumes.engine_mounts(backend),
    }
