"""Where replicas may run, and what they need of the cluster: the part of `spec.pod` that a pod spec takes as it is."""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.resources.labels import selector
from penstock.resources.objects import Object

REVISION_LABEL = "pod-template-hash"
"""Kubernetes' own, on the pods of each ReplicaSet."""


def build(backend: LLMBackend) -> Object:
    """Return the fields of the pod spec; those that the backend leaves out are left to the cluster."""
    pod = backend.spec.pod
    given: Object = {
        "nodeSelector": dict(pod.node_selector or {}),
        "tolerations": [toleration.to_dict() for toleration in pod.tolerations],
        "affinity": pod.affinity.to_dict() if pod.affinity else {},
        "topologySpreadConstraints": [
            {
                **constraint.to_dict(),
                "labelSelector": {"matchLabels": selector(backend)},
                # Replicas that are being replaced do not count, or the new ones would end up spread unevenly.
                "matchLabelKeys": [REVISION_LABEL],
            }
            for constraint in pod.topology_spread_constraints
        ],
        "priorityClassName": pod.priority_class_name,
        "runtimeClassName": pod.runtime_class_name,
        "schedulerName": pod.scheduler_name,
        "imagePullSecrets": [reference.to_dict() for reference in pod.image_pull_secrets],
    }
    return {name: value for name, value in given.items() if value}
