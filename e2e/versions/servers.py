"""The kube-apiservers under test, each pinned by a `go.mod` of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from e2e.cluster import debian, gobuild
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.gobuild import Program, kubernetes_stamp

# 1.29 is the first release that starts native sidecars unasked. Its source still holds the cloud providers of the
# time, one of which the module proxy no longer serves, so it is compiled without them.
OLDEST = "1.29.6"
NEWEST = "1.37.2"
TAGS = {OLDEST: "providerless"}

ASSETS = "KUBEBUILDER_ASSETS"


def binary(version: str) -> Path:
    """Return the path of kube-apiserver in a version, compiled on first use.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    program = Program(
        f"kubernetes-{version.rpartition('.')[0]}",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        stamp=kubernetes_stamp(version),
        tags=TAGS.get(version, ""),
        usually="5 min",
    )
    return gobuild.build("kube-apiserver", program)


@contextlib.contextmanager
def running(version: str) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver in a version."""
    before = os.environ.get(ASSETS)
    with TemporaryDirectory(prefix="penstock-assets-") as folder:
        for name, path in (
            ("kube-apiserver", binary(version)),
            ("etcd", debian.unpack(debian.ETCD).program("etcd")),
        ):
            (Path(folder) / name).symlink_to(path)
        os.environ[ASSETS] = folder
        try:
            with ControlPlane() as plane:
                yield plane
        finally:
            if before is None:
                del os.environ[ASSETS]
            else:
                os.environ[ASSETS] = before
