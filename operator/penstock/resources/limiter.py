"""The limiter's container: a native sidecar, so it starts before the engine and is stopped after it."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.pod import RESERVED_VOLUME_PREFIX
from penstock.api.quantity import amount
from penstock.api.replica import ADMIN_PORT, API_PORT, POD_UID_VARIABLE, POLICY_PATH, ReplicaSettings
from penstock.engines.engine import for_type
from penstock.resources import configmap, secrets, security
from penstock.resources.objects import Object
from penstock.resources.settings import BuildSettings

CONTAINER = "limiter"
ADMIN_PORT_NAME = "admin"
"""For those who resolve it from the pod themselves; probes, hooks and Services go by number."""

POLICY_VOLUME = RESERVED_VOLUME_PREFIX + "policy"

LIVENESS_PERIOD_SECONDS = 10
LIVENESS_FAILURES = 3
PROBE_GRACE_SECONDS = 5


def build(backend: LLMBackend, *, settings: BuildSettings, drain_token_sha256: str) -> Object:
    """Return the container.

    Args:
        backend: Whose replica it guards.
        settings: The image to run where the backend names none, and the platform.
        drain_token_sha256: What the limiter checks drain requests against; the token itself stays with the hook.
    """
    return {
        "name": CONTAINER,
        "image": backend.spec.limiter.image or settings.limiter_image,
        "command": ["penstock", "limiter"],
        "restartPolicy": "Always",
        "env": [
            *({"name": name, "value": value} for name, value in _environment(backend, drain_token_sha256).items()),
            {
                "name": POD_UID_VARIABLE,
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
            },
        ],
        "ports": [
            {"name": "api", "containerPort": API_PORT, "protocol": "TCP"},
            {"name": ADMIN_PORT_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"},
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
        "securityContext": security.limiter(platform=settings.platform),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            # A folder, never a subPath: files of a subPath mount do not follow the ConfigMap.
            {"name": POLICY_VOLUME, "mountPath": POLICY_PATH.rpartition("/")[0], "readOnly": True},
            *secrets.mounts(backend),
        ],
    }


def volumes(backend: LLMBackend) -> list[Object]:
    """Return the pod's volumes that the limiter mounts."""
    return [{"name": POLICY_VOLUME, "configMap": {"name": configmap.name(backend)}}, *secrets.volumes(backend)]


def _environment(backend: LLMBackend, drain_token_sha256: str) -> dict[str, str]:
    spec = backend.spec
    engine = for_type(spec.engine.type)
    version = engine.version_of(spec)
    memory_limit = (spec.limiter.resources.limits or {}).get("memory")
    return ReplicaSettings(
        backend_name=backend.metadata.name,
        backend_namespace=backend.metadata.namespace,
        backend_uid=backend.metadata.uid,
        engine_type=spec.engine.type,
        engine_version=str(version) if version else None,
        served_names=spec.model.served_names,
        max_concurrency=engine.concurrency(spec),
        context_length=engine.context_tokens(spec),
        memory_limit_bytes=int(amount(memory_limit)) if memory_limit else None,
        lame_duck_seconds=spec.drain.lame_duck_seconds,
        drain_timeout_seconds=spec.drain.timeout_seconds,
        drain_token_sha256=drain_token_sha256,
        tenants_path=secrets.tenants_path(backend),
        store_url_path=secrets.store_url_path(backend),
    ).to_env()
