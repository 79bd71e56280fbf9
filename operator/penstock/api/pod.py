"""`spec.pod`: what the pod holds besides the engine and the limiter. A short list, not a whole pod template."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.api.affinity import Affinity
from penstock.api.annotations import ListMap
from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import MebibyteCount, ObjectName, SecretReference
from penstock.api.labels import Annotations, Labels, NodeLabels
from penstock.api.scheduling import PodSecurityContext, Toleration, TopologySpreadConstraint
from penstock.api.volumes import RESERVED_VOLUME_PREFIX, Volume, VolumeMount

__all__ = ["RESERVED_VOLUME_PREFIX", "PodSpec", "Volume", "VolumeMount"]


class PodSpec(ApiModel):
    """What the pod holds besides the engine and the limiter."""

    labels: Labels | None = None
    """Further labels of the pods."""

    annotations: Annotations | None = None
    """Further annotations of the pods."""

    node_selector: NodeLabels | None = None
    """Labels that a node must have to take a replica."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints that replicas put up with."""

    affinity: Affinity | None = None
    """Affinity as in a pod; `kubectl explain pod.spec.affinity` tells all of it."""

    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], Field(max_length=8), ListMap("topologyKey")
    ] = ()
    """How replicas are spread over zones or nodes."""

    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""

    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, such as `nvidia`."""

    scheduler_name: ObjectName | None = None
    """Scheduler of the pods. Default: the cluster's."""

    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods, which get no token either way. Default: one of the backend's own."""

    image_pull_secrets: Annotated[tuple[SecretReference, ...], Field(max_length=16), ListMap("name")] = ()
    """Secrets for pulling images."""

    security_context: PodSecurityContext | None = None
    """As whom the engine runs. Default: an unprivileged user that passes the `restricted` level."""

    volumes: Annotated[tuple[Volume, ...], Field(max_length=32), ListMap("name")] = ()
    """Volumes for the engine container."""

    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=32), ListMap("mountPath")] = ()
    """Where the volumes appear in the engine container."""

    shared_memory_mebibytes: MebibyteCount | None = None
    """Size of `/dev/shm` in MiB, part of the memory limit."""

    rules = (
        Rule(
            cel=(
                "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
                "self.volumes.exists(v, v.name == m.name))"
            ),
            message="every entry of `volumeMounts` names a volume in `volumes`",
            holds=lambda pod: {mount.name for mount in pod.volume_mounts} <= {volume.name for volume in pod.volumes},
        ),
    )
