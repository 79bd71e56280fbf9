"""What a test may ask of a cluster, whatever made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any, Protocol

from e2e.cluster.node import Node


class Cluster(Protocol):
    """A Kubernetes cluster for tests.

    Attributes:
        name: Clusters with different names share nothing.
        kubeconfig: Path of a kubeconfig with administrator rights, valid inside the cluster's network.
        logs: Folder with one log per part of the cluster.
        nodes: The nodes, the one with the control plane first.
        kubectl_path: A kubectl of the cluster's own version.
    """

    @property
    def name(self) -> str: ...

    @property
    def kubeconfig(self) -> Path: ...

    @property
    def logs(self) -> Path: ...

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    @property
    def kubectl_path(self) -> Path: ...

    def up(self) -> None:
        """Start the cluster and wait until its nodes are Ready; nothing to do if it is up.

        Raises:
            ClusterError: It does not start; the message names the part and holds what it said last.
        """

    def down(self) -> None:
        """Remove the cluster with everything that belongs to it; harmless if there is none."""

    def load_image(self, archive: Path) -> None:
        """Make the images of a docker-archive tar known to every node; those that are there already are skipped."""

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        node: str | None = None,
        check: bool = True,
        input: str | None = None,  # noqa: A002 - as subprocess calls it
        timeout: float | None = None,
        capture: bool = True,
    ) -> CompletedProcess[str]:
        """Run a command in a node's network, with KUBECONFIG set and Service names resolved as in a pod.

        Args:
            argv: The command.
            node: Name of the node, the first one by default.
            check: Raise `CalledProcessError` if the command fails.
            input: Text for its standard input.
            timeout: Seconds after which it is killed and `TimeoutExpired` raised.
            capture: Collect its output instead of showing it.
        """

    def popen(self, argv: Sequence[str | Path], *, node: str | None = None, **popen_kwargs: Any) -> Popen[str]:
        """Start a command in a node's network, with KUBECONFIG set; the rest is as for `subprocess.Popen`."""

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """Run kubectl as administrator and return what it printed."""
