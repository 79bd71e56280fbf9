"""Real Kubernetes clusters for tests: two nodes on one machine, or only a control plane (`controlplane`)."""

from __future__ import annotations

from e2e.cluster.errors import ClusterError
from e2e.cluster.kind.driver import KindCluster
from e2e.cluster.local import LocalCluster
from e2e.cluster.node import Node
from e2e.cluster.protocol import Cluster

__all__ = ["DRIVERS", "Cluster", "ClusterError", "Node", "open_cluster"]

DRIVERS: dict[str, type[LocalCluster | KindCluster]] = {"local": LocalCluster, "kind": KindCluster}


def open_cluster(driver: str = "local", *, name: str = "e2e") -> Cluster:
    """Return the cluster with that name, which may or may not be up.

    Args:
        driver: What makes it: `local`, namespaces on this machine; `kind`, nodes in Docker containers.
        name: Clusters with different names run side by side.

    Raises:
        ClusterError: There is no such driver, or the name cannot be one.
    """
    if driver not in DRIVERS:
        raise ClusterError(f"there is no cluster driver `{driver}`; there is: {', '.join(DRIVERS)}")
    return DRIVERS[driver](name)
