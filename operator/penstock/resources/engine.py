"""The engine's container: reached through the limiter only, so its probes and its hook go to the limiter's admin port.

Ports are numbers throughout: named ports of native sidecars are not resolved by every supported Kubernetes release.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.replica import ADMIN_PORT, DRAIN_TOKEN_HEADER
from penstock.engines.engine import for_type
from penstock.resources import security, volumes
from penstock.resources.objects import Object
from penstock.resources.settings import Platform

CONTAINER = "engine"

PROBE_GRACE_SECONDS = 10
"""Grace after a failed probe of the engine: kubelet runs the preStop hook then too, and that drain could never end."""

STARTUP_PERIOD_SECONDS = 1
"""Short, since readiness begins only after the startup probe: a longer period would be a delay users wait for."""

LIVENESS_PERIOD_SECONDS = 5
LIVENESS_FAILURES = 24
"""Two minutes in all: the probe goes through the limiter, and kubelet may hold a crashed one back for 80 seconds. A
restarted limiter must not cost the engine its loaded model."""


def build(backend: LLMBackend, *, platform: Platform, drain_token: str) -> Object:
    """Return the container.

    Args:
        backend: Whose engine it is; its image is the one that will run.
        platform: What decides over the container's user.
        drain_token: What the preStop hook proves itself with.
    """
    spec = backend.spec
    engine = for_type(spec.engine.type)
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
            "failureThreshold": spec.startup_seconds // STARTUP_PERIOD_SECONDS,
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
                    "httpHeaders": [{"name": DRAIN_TOKEN_HEADER, "value": drain_token}],
                },
            },
        },
        "securityContext": security.engine(backend, platform=platform),
        # The last lines of the log become the termination message, which status shows when the engine crashes.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volumes.engine_mounts(backend),
    }
