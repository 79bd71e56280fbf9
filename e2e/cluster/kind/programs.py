"""The programs that kind and its node image need beyond those of the local driver, compiled from pinned Go modules.

Each is a module of its own, so that no program decides which version of a dependency another one gets. kubeadm belongs
to the module of the kubelet and has its version.
"""

from __future__ import annotations

from pathlib import Path

from e2e.cluster import gobuild
from e2e.cluster.gobuild import Program

KIND_VERSION = (0, 33, 0)

_MODULES = Path(__file__).parent / "go"

PROGRAMS = {
    "kubeadm": Program(
        str(_MODULES / "kubeadm"),
        "k8s.io/kubernetes/cmd/kubeadm",
        stamp=gobuild.PROGRAMS["kubelet"].stamp,
        usually="1 min",
    ),
    "crictl": Program(str(_MODULES / "crictl"), "sigs.k8s.io/cri-tools/cmd/crictl", usually="1 min"),
    "etcd": Program(str(_MODULES / "etcd"), "go.etcd.io/etcd/server/v3", usually="1 min"),
    "kind": Program(str(_MODULES / "kind"), "sigs.k8s.io/kind", usually="20 s"),
    "podnet": Program(str(_MODULES / "podnet"), ".", usually="20 s"),
}


def binary(name: str) -> Path:
    """Return the path of a program, of this package or of the local driver, compiled on first use.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    if name in PROGRAMS:
        return gobuild.build(name, PROGRAMS[name])
    return gobuild.binary(name)
