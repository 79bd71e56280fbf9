"""A node: a set of namespaces, and ways to run something in them.

The parts of Kubernetes run in all of the node's namespaces. Commands of a test run in its network only: they see the
machine's files and processes, reach pods and Services by address, and, through a resolv.conf of their own, by name.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import network
from e2e.cluster.errors import ClusterError
from e2e.cluster.process import Identity, Part, children, wait_until

ANCHOR = Path(__file__).with_name("anchor.py")
READY_FILE = "ready"
START_SECONDS = 30

# `sh` makes the mount and turns into the command, so the command has the pid that its parent knows.
_WITH_RESOLVER = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'


@dataclass(frozen=True)
class Node:
    """One node of a cluster.

    Attributes:
        name: As in `kubectl get nodes`.
        address: IPv4 address in the cluster's own network.
    """

    name: str
    address: str


class Namespaces:
    """The namespaces of one node, held open by its anchor process."""

    def __init__(self, anchor: Identity, *, holder: Part | None = None) -> None:
        """Refer to namespaces that exist.

        Args:
            anchor: Their first process.
            holder: The child of this process that waits for the anchor, if this process has started it.
        """
        self.anchor, self.holder = anchor, holder

    @classmethod
    def create(cls, hostname: str, *, private: Path, log: Path, environment: Mapping[str, str]) -> Namespaces:
        """Start an anchor and wait until its namespaces are prepared.

        Args:
            hostname: Host name that the node sees.
            private: Folder for what the node writes to the folders that it has for itself; must not exist.
            log: File for what the anchor says.
            environment: Environment of the anchor.

        Raises:
            ClusterError: The machine does not allow it; the message holds the reason.
        """
        private.mkdir(parents=True)
        kinds = ("--net", "--mount", "--uts", "--pid", "--propagation=slave", "--fork", "--kill-child")
        argv = ["unshare", *kinds, "--", sys.executable, "-I", "-S", str(ANCHOR), hostname, str(private)]
        part = Part(f"the first process of {hostname}", argv, log=log, environment=environment)
        ready = private / READY_FILE
        wait_until(
            lambda: None if ready.exists() else "still preparing",
            what=f"namespaces for {hostname}",
            part=part,
            seconds=START_SECONDS,
        )
        return cls(children(part.pid)[0], holder=part)

    def enter_all(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` as a part of the node, in all its namespaces."""
        return ["nsenter", f"--target={self._pid()}", "--net", "--mount", "--uts", "--pid", "--", *argv]

    def enter_network(self, argv: Sequence[str], *, resolver: Path | None = None) -> list[str]:
        """Return the command line that runs `argv` in the node's network, see the function `enter_network`."""
        return enter_network(self.network, argv, resolver=resolver)

    @property
    def network(self) -> Path:
        """The file that stands for the node's network namespace."""
        return Path(f"/proc/{self._pid()}/ns/net")

    def start(self, name: str, argv: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Part:
        """Start a part of the node."""
        return Part(name, self.enter_all(argv), log=log, environment=environment)

    def run(self, argv: Sequence[str], *, environment: Mapping[str, str]) -> str:
        """Run a short command in all of the node's namespaces and return its output.

        Raises:
            ClusterError: It failed; the message holds what it said.
        """
        done = subprocess.run(self.enter_all(argv), env=dict(environment), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"`{shlex.join(argv)}` failed:\n{done.stderr.strip()}")
        return done.stdout

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to an address from inside the node's network.

        Raises:
            OSError: Nobody answers there.
        """
        return network.connect_in(self.network, host, port)

    def _pid(self) -> int:
        if not self.anchor.alive:
            raise ClusterError("the node is gone: its first process has ended; take the cluster down and up again")
        return self.anchor.pid


def enter_network(namespace: Path, argv: Sequence[str], *, resolver: Path | None = None) -> list[str]:
    """Return the command line that runs `argv` in a network, with its pid, files and folder unchanged.

    Args:
        namespace: File that stands for the network namespace.
        argv: The command.
        resolver: File that the command is to see as /etc/resolv.conf.
    """
    command = ["nsenter", f"--net={namespace}", "--"]
    if resolver:
        command += ["unshare", "--mount", "--propagation=slave", "--", "sh", "-c", _WITH_RESOLVER, "sh", str(resolver)]
    return [*command, *argv]
