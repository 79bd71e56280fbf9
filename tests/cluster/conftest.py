"""Fixtures of the cluster package's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cluster import cgroups, cleanup, machine, process
from e2e.cluster.process import Identity, identity

# Places with one fixed name that the parts of a node write to; on the machine itself they must stay as they are.
FIXED_PLACES = (
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/netns",
    "/run/xtables.lock",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing for a minute."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def sleeper_identity(sleeper: subprocess.Popen[bytes]) -> Identity:
    found = identity(sleeper.pid)
    assert found is not None
    return found


@dataclass
class Traces:
    """What a running cluster has of the machine, to be looked for once it is gone."""

    root: Path
    group: str
    processes: list[Identity]
    places: set[str]

    def left(self) -> list[str]:
        """Return a line for everything that is still there."""
        mounts = cgroups.mounts()
        tops = [mount.target / self.group for mount in cgroups.hierarchies(mounts)]
        return [
            *(f"process {one.pid}" for one in self.processes if one.alive),
            *(f"marked process {one.pid}" for one in process.marked(cleanup.mark(self.root))),
            *(f"mount {path}" for path in cleanup.below(self.root, mounts)),
            *(f"control group {top}" for top in tops if top.exists()),
            *([f"files in {self.root}"] if self.root.exists() else []),
            *(f"new on the machine: {place}" for place in _places() - self.places),
        ]


@pytest.fixture(scope="session")
def trace() -> Callable[[str], Traces]:
    """Take down what the running cluster with a name has of the machine."""
    places = _places()

    def of(name: str) -> Traces:
        folders, own = machine.folders_of(name), _namespaces(os.getpid())
        marked = process.marked(cleanup.mark(folders.root))
        namespaces = {one for who in marked for one in _namespaces(who.pid)} - own
        # A container's processes have no mark, but share a namespace with the node or with a process that has it.
        inside = [process.identity(pid) for pid in process._pids() if _namespaces(pid) & namespaces]
        return Traces(folders.root, folders.group, [*marked, *filter(None, inside)], places)

    return of


def _places() -> set[str]:
    return {place for place in FIXED_PLACES if Path(place).exists()}


def _namespaces(pid: int) -> set[str]:
    try:
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt", "pid", "uts")}
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
