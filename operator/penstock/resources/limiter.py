"""The limiter's container: a native sidecar, so it starts before the engine and is stopped after it."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.pod import RESERVED_VOLUME_PREFIX
from penstock.api.replica import ADMIN_PORT, API_PORT, POLICY_PATH, ReplicaSettings
from penstock.engines.engine import for_type
from penstock.resources import security
from penstock.resources.objects import Object

CONTAINER = "limiter"
POLICY_VOLUME = RESERVED_VOLUME_PREFIX + "policy"

USER_ID = 65532
LIVENESS_PERIOD_SECONDS = 10
LIVENESS_FAILURES = 3
PROBE_GRACE_SECONDS = 5


def build(backend: LLMBackend, *, image: str, drain_token_sha256: str) -> Object:
    """Return the container.

    Args:
        backend: Whose replica it guards.
        image: Image to run where the backend names none.
        drain_token_sha256: What the limiter checks drain requests against; the token itself stays with the hook.
    """
    return {
        "name": CONTAINER,
        "image": backend.spec.limiter.image or image,
        "command": ["penstock", "limiter"],
        "restartPolicy": "Always",
        "env": [{"name": name, "value": value} for name, value in _settings(backend, drain_token_sha256).items()],
        "ports": [
            {"name": "api", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "resources": backend.spec.limiter.resources.to_dict(),
        # The limiter decides what ready means and debounces it: kubelet is to follow at once, in both directions.
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": ADMIN_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 1,
            "successThreshold": 1,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": ADMIN_PORT},
            "periodSeconds": LIVENESS_PERIOD_SECONDS,
            "timeoutSeconds": 5,
            "failureThreshold": LIVENESS_FAILURES,
            "terminationGracePeriodSeconds": PROBE_GRACE_SECONDS,
        },
        "securityContext": security.container(user_id=USER_ID, group_id=USER_ID),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # A folder, never a subPath: files of a subPath mount do not follow the ConfigMap.
            {"name": POLICY_VOLUME, "mountPath": POLICY_PATH.rpartition("/")[0], "readOnly": True},
        ],
    }


def _settings(backend: LLMBackend, drain_token_sha256: str) -> dict[str, str]:
    spec = backend.spec
    return ReplicaSettings(
        backend_name=backend.metadata.name,
        backend_namespace=backend.metadata.namespace,
        backend_uid=backend.metadata.uid,
        engine_type=spec.engine.type,
        served_names=spec.model.served_names,
        max_concurrency=for_type(spec.engine.type).concurrency(spec),
        lame_duck_seconds=spec.drain.lame_duck_seconds,
        drain_timeout_seconds=spec.drain.timeout_seconds,
        drain_token_sha256=drain_token_sha256,
    ).to_env()
