"""Where a cluster keeps its files, and the names that its parts call each other by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

API_PORT = 6443
DOMAIN = "cluster.local"
NODE_NUMBERS = (1, 2)


@dataclass(frozen=True)
class Folders:
    """Where a cluster keeps its files.

    Attributes:
        root: Everything is below it.
        group: Name of the cluster's control group.
    """

    root: Path
    group: str

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def resolver(self) -> Path:
        return self.root / "resolv.conf"

    def node(self, number: int) -> Path:
        return self.root / node_name(number)

    def config(self, name: str) -> Path:
        return self.root / "config" / name


def node_name(number: int) -> str:
    """Return the name of node 1 or 2."""
    return f"node-{number}"
