"""Addresses of a cluster, and the one cable between its two nodes.

Every cluster has the same addresses, from the range set aside for benchmarks (198.18.0.0/15), because no link joins a
cluster to another or to the machine: a veth pair connects the two nodes' network namespaces and nothing else. A packet
for anywhere else is refused at once, so no test can reach a host that it did not start.

    198.18.0.0/24     nodes: node-1 is .1, node-2 is .2
    198.18.16.0/20    pods: node-1 has 198.18.17.0/24, node-2 has 198.18.18.0/24
    198.18.32.0/20    Services
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from pathlib import Path

from e2e.cluster.errors import ClusterError

NODE_PREFIX = 24
SERVICES = "198.18.32.0/20"
FIRST_SERVICE = "198.18.32.1"
"""Address of the Service `kubernetes`: always the first of the range."""

DEVICE = "node0"
TIMEOUT_SECONDS = 5
CLONE_NEWNET = 0x40000000


def node_address(number: int) -> str:
    """Return the address of node 1 or 2."""
    return f"198.18.0.{number}"


def pod_subnet(number: int) -> str:
    """Return the range of addresses of the pods on node 1 or 2."""
    return f"198.18.{16 + number}.0/24"


def join(first: Path, second: Path) -> None:
    """Connect two nodes with a veth pair and tell each the way to the other's pods.

    Args:
        first: File that stands for the network namespace of node 1.
        second: The same for node 2.

    Raises:
        ClusterError: The kernel refuses; the message holds what `ip` said.
    """
    # The pair is made inside the nodes: no device with a name that could collide ever exists on the machine.
    _ip(first, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", second.parts[2])
    for number, namespace in ((1, first), (2, second)):
        _ip(namespace, "addr", "add", f"{node_address(number)}/{NODE_PREFIX}", "dev", DEVICE)
        _ip(namespace, "link", "set", DEVICE, "up")
    for number, other, namespace in ((1, 2, first), (2, 1, second)):
        _ip(namespace, "route", "add", pod_subnet(other), "via", node_address(other))
        # A Service's address is rewritten before it leaves, but the kernel wants a route for it first.
        _ip(namespace, "route", "add", SERVICES, "dev", DEVICE, "src", node_address(number))


def connect_in(namespace: Path, host: str, port: int) -> socket.socket:
    """Connect to an address from inside another network namespace.

    A socket stays in the namespace it was made in, and a thread can be in another namespace than its process: so a
    thread goes there, connects and ends.

    Raises:
        OSError: Nobody answers, or the namespace is gone.
    """
    outcome: list[socket.socket | OSError] = []

    def visit() -> None:
        try:
            with namespace.open("rb") as file:
                _setns(file.fileno())
            outcome.append(socket.create_connection((host, port), timeout=TIMEOUT_SECONDS))
        except OSError as error:
            outcome.append(error)

    visitor = threading.Thread(target=visit, name="visitor of another network")
    visitor.start()
    visitor.join()
    (result,) = outcome
    if isinstance(result, OSError):
        raise result
    return result


def _setns(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(namespace: Path, *arguments: str) -> None:
    argv = ["nsenter", f"--net={namespace}", "--", "ip", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"`ip {' '.join(arguments)}` failed in a node's network: {done.stderr.strip()}")
