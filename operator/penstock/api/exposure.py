"""`spec.service`, `spec.monitoring` and `spec.networkPolicy`: who reaches the replicas, and how."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.base import ApiModel
from penstock.api.labels import Annotations, Labels


class ServiceType(StrEnum):
    """Kinds of Services that can stand before replicas."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class ServiceSpec(ApiModel):
    """The Service in front of the replicas; it has the backend's name."""

    port: Annotated[int, Field(ge=1, le=65535)] = 80
    """Port of the Service. Default: 80."""

    type: ServiceType = ServiceType.CLUSTER_IP
    """`ClusterIP` (default), `NodePort` or `LoadBalancer`. The limiter speaks plain HTTP: TLS is the gateway's."""

    annotations: Annotations | None = None
    """Annotations of the Service, for the cloud's load balancer."""


class PodMonitorMode(StrEnum):
    """Whether Prometheus is told about the replicas."""

    AUTO = "Auto"
    ENABLED = "Enabled"
    DISABLED = "Disabled"


class MonitoringSpec(ApiModel):
    """How Prometheus finds the replicas."""

    pod_monitor: PodMonitorMode = PodMonitorMode.AUTO
    """PodMonitor for the Prometheus Operator: `Auto` (default, where the cluster knows the kind), `Enabled` or
    `Disabled`."""

    labels: Labels | None = None
    """Labels of the PodMonitor, where a Prometheus selects by them."""
