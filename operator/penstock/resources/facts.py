"""What is known of the cluster the children are made for, read by the operator and handed to the builders."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """Facts about the cluster; the defaults are what may be assumed of every one.

    Attributes:
        pod_monitors: Whether the kind PodMonitor is served.
        kubernetes_minor: The minor version of the API server, 34 for 1.34; None while unknown.
    """

    pod_monitors: bool = False
    kubernetes_minor: int | None = None


UNKNOWN = ClusterFacts()
"""What holds before anything has been read."""
