"""What kind and the nodes are told: plain values in, plain text out.

A daemon of our own sits in a network that no link joins to the outside, so its addresses are ours to choose: all of
them come from the range set aside for benchmarks (198.18.0.0/15), and the node image knows them. A user's daemon
keeps kind's defaults.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from e2e.cluster.errors import ClusterError

NETWORK = "kind"
"""The Docker network that kind puts its nodes in."""

NODE_ROLES = ("control-plane", "worker")


@dataclass(frozen=True)
class Ranges:
    """Address ranges of a cluster, as CIDR blocks."""

    nodes: str
    services: str
    pods: str


OWN_RANGES = Ranges(nodes="198.18.0.0/24", services="198.18.32.0/20", pods="198.18.64.0/18")


def cluster_name(name: str) -> str:
    """Return the name that kind knows the cluster by, also the prefix of its node containers."""
    return f"penstock-{name}"


def cluster_config(ranges: Ranges | None) -> str:
    """Return kind's configuration for one control plane and one worker.

    Args:
        ranges: Address ranges to use instead of kind's defaults.
    """
    networking: dict[str, Any] = {"ipFamily": "ipv4"}
    if ranges:
        networking |= {"podSubnet": ranges.pods, "serviceSubnet": ranges.services}
    document = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": networking,
        "nodes": [{"role": role} for role in NODE_ROLES],
    }
    return json.dumps(document, indent=2) + "\n"  # every JSON document is YAML


def node_ranges(ranges: Ranges) -> str:
    """Return the file that tells the entrypoint of a node image which ranges it serves."""
    return f"pods={ranges.pods}\nservices={ranges.services}\n"


def resolv_conf(dns: str) -> str:
    """Return the resolv.conf of a pod in the namespace `default`.

    Args:
        dns: Address of the cluster's DNS Service.
    """
    search = "default.svc.cluster.local svc.cluster.local cluster.local"
    return f"nameserver {dns}\nsearch {search}\noptions ndots:5\n"


def with_server(kubeconfig: str, address: str) -> str:
    """Return kind's internal kubeconfig with the API server's address in place of its container's name.

    The name means something only to Docker's own resolver; the address works from the daemon's network and from every
    node, and the API server's certificate names it.

    Raises:
        ClusterError: The text names no server, so it is no kubeconfig.
    """
    changed, count = re.subn(r"(server: https://)[^:\s]+", rf"\g<1>{address}", kubeconfig)
    if count != 1:
        raise ClusterError(f"kind's kubeconfig names {count} servers, not one; run it again after `down`")
    return changed
