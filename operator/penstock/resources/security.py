"""Security contexts that meet the Pod Security level `restricted`, with a read-only root besides.

Users and groups are the backend's own where it names them, else the engine's. On OpenShift there is no such default: a
project gives its pods a user and a group of its own, and refuses every other.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.api.scheduling import PodSecurityContext
from penstock.engines.engine import for_type
from penstock.resources.objects import Object
from penstock.resources.settings import Platform

LIMITER_USER_ID = 65532
"""Another user than the engine's, so that the engine cannot look into the limiter's process."""


def pod(backend: LLMBackend, *, platform: Platform) -> Object:
    """Return the pod's security context; volumes belong to the engine's group, so that it can write to them."""
    given = _given(backend).to_dict()
    group_id = _default(platform, for_type(backend.spec.engine.type).facts.group_id)
    context: Object = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "fsGroup": given.get("fsGroup", group_id),
        # By default kubelet would walk through the whole volume at every start.
        "fsGroupChangePolicy": given.get("fsGroupChangePolicy", "OnRootMismatch"),
        "supplementalGroups": given.get("supplementalGroups"),
        "seLinuxOptions": given.get("seLinuxOptions"),
    }
    return {name: value for name, value in context.items() if value}


def engine(backend: LLMBackend, *, platform: Platform) -> Object:
    """Return the security context of the engine, and of what writes files for it."""
    given, facts = _given(backend), for_type(backend.spec.engine.type).facts
    return _container(
        user_id=given.run_as_user or _default(platform, facts.user_id),
        group_id=given.run_as_group or _default(platform, facts.group_id),
    )


def limiter(*, platform: Platform) -> Object:
    """Return the limiter's security context."""
    user_id = _default(platform, LIMITER_USER_ID)
    return _container(user_id=user_id, group_id=user_id)


def _container(*, user_id: int | None, group_id: int | None) -> Object:
    context: Object = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    if user_id is not None:
        context["runAsUser"] = user_id
    if group_id is not None:
        context["runAsGroup"] = group_id
    return context


def _given(backend: LLMBackend) -> PodSecurityContext:
    return backend.spec.pod.security_context or PodSecurityContext()


def _default(platform: Platform, number: int) -> int | None:
    return None if platform is Platform.OPENSHIFT else number
