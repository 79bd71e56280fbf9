"""What follows from a changed ConfigMap or Secret, without the wait for the kubelet's next look.

The kubelet looks every 60 to 90 s whether mounted files have changed, and at once when the pod changes: an annotation
is enough, and it restarts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kubernetes import client

from e2e.suite.backends import NAMESPACE, limiter_state, wait_until

EFFECT_SECONDS = 30.0
NUDGE_SECONDS = 1.0


def wait_for_files(pod: Any, api: client.ApiClient, holds: Callable[[], bool], *, what: str) -> float:
    """Wait for what follows from changed files in the pod; return the seconds it took."""
    core, due = client.CoreV1Api(api), 0.0

    def look() -> bool:
        nonlocal due
        if (now := time.monotonic()) >= due:
            due = now + NUDGE_SECONDS
            body = {"metadata": {"annotations": {"e2e.penstock.dev/nudge": f"{now}"}}}
            core.patch_namespaced_pod(pod.metadata.name, NAMESPACE, body)
        return holds()

    return wait_until(look, timeout=EFFECT_SECONDS, what=lambda: f"{what}; the limiter says {limiter_state(pod)}")
