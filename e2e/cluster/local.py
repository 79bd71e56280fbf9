"""The local driver: a real two-node cluster on this machine, from programs that this package builds or unpacks.

Each node is a set of namespaces (`node.py`), joined by one cable (`network.py`); node 1 also runs the control plane.
The cluster's name is in everything that could collide on the machine: its folder, its control groups, the mark of its
processes. So clusters with different names run side by side, and any command can find and remove any of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from e2e.cache import duration, say
from e2e.cluster import cleanup, debian, gobuild, imagestore, network, parts
from e2e.cluster.bringup import BringUp, Programs, containerd_client
from e2e.cluster.commands import Commands
from e2e.cluster.errors import ClusterError
from e2e.cluster.exclusive import lock, sigterm_as_exit
from e2e.cluster.folders import NODE_NUMBERS, node_name
from e2e.cluster.machine import check_machine, folders_of
from e2e.cluster.node import Namespaces, Node
from e2e.cluster.process import Identity, Part, children


class LocalCluster(Commands):
    """A cluster of two nodes on this machine; see `protocol.Cluster` for what its methods promise."""

    def __init__(self, name: str, *, extra_arguments: Mapping[str, Sequence[str]] | None = None) -> None:
        """Name a cluster; nothing is looked at or started yet.

        Args:
            name: A short DNS label. Clusters with different names run side by side.
            extra_arguments: More command line arguments by part, as `{"kube-apiserver": ["--v=4"]}`.
        """
        super().__init__(name, folders_of(name))
        self._extra = dict(extra_arguments or {})
        self._children: list[Part] = []

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(node_name(number), network.node_address(number)) for number in NODE_NUMBERS)

    @property
    def kubectl_path(self) -> Path:
        return gobuild.binary("kubectl")

    def up(self) -> None:
        check_machine(self.folders.root)
        programs = Programs.find()
        with lock(self.folders.root):
            if self.status()["up"]:
                say(f"the cluster {self.name} is up already")
                return
            started = time.monotonic()
            cleanup.remove(self.folders)
            bring_up = BringUp(self.name, self.folders, programs, self.mark(), self._extra)
            self._children = bring_up.children
            with sigterm_as_exit():
                try:
                    bring_up.run()
                    self._write_state(bring_up)
                except BaseException:
                    cleanup.remove(self.folders, keep_logs=True)
                    self._reap()
                    raise
        say(f"the cluster {self.name} is up after {duration(time.monotonic() - started)}; logs in {self.logs}")

    def down(self) -> None:
        with lock(self.folders.root) as file:
            cleanup.remove(self.folders)
            file.unlink()
        self._reap()

    def load_image(self, archive: Path) -> None:
        packages = debian.unpack(debian.NODE)

        def load(number: int) -> bool:
            ctr = containerd_client(self._namespaces(number), packages, self.mark())
            return imagestore.load(archive.resolve(), ctr=ctr)

        with ThreadPoolExecutor(len(NODE_NUMBERS)) as pool:
            count = sum(pool.map(load, NODE_NUMBERS))
        say(f"{imagestore.names(archive)}: {f'loaded on {count} nodes' if count else 'on every node already'}")

    def enter(self, argv: Sequence[str], *, node: str | None = None) -> list[str]:
        numbers = {node_name(number): number for number in NODE_NUMBERS}
        wanted = node or node_name(1)
        if wanted not in numbers:
            raise ClusterError(f"the cluster {self.name} has no node {wanted}; it has {', '.join(numbers)}")
        return self._namespaces(numbers[wanted]).enter_network(argv, resolver=self.folders.resolver)

    def status(self) -> dict[str, Any]:
        """Return what runs, ready for JSON: nodes, parts with pid and log, and where the files are."""
        processes = {name: Identity(**entry) for name, entry in self._read_state().get("parts", {}).items()}
        return {
            "name": self.name,
            "driver": "local",
            "up": bool(processes) and all(process.alive for process in processes.values()),
            "kubeconfig": str(self.kubeconfig),
            "logs": str(self.logs),
            "nodes": [{"name": node.name, "address": node.address} for node in self.nodes],
            "parts": [
                {"name": name, "pid": process.pid, "alive": process.alive, "log": str(self.logs / f"{name}.log")}
                for name, process in processes.items()
            ],
        }

    def _reap(self) -> None:
        """Collect the exit statuses of what this process started and `cleanup` ended, else the kernel keeps them."""
        self._children = [part for part in self._children if not part.died]

    def _namespaces(self, number: int) -> Namespaces:
        anchor = self._read_state().get("anchors", {}).get(node_name(number))
        if anchor is None:
            raise ClusterError(
                f"no cluster {self.name} is up: `make demo` starts the demo's, "
                f"`python -m e2e.cluster up --name {self.name}` an empty one"
            )
        return Namespaces(Identity(**anchor))

    def _state_file(self) -> Path:
        return self.folders.root / "state.json"

    def _read_state(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._state_file().read_text()))
        except FileNotFoundError:
            return {}

    def _write_state(self, bring_up: BringUp) -> None:
        # A part's own process is the child of the nsenter that put it into the pid namespace.
        running = {name: children(part.pid) for name, part in bring_up.started.items()}
        state = {
            "anchors": {node_name(number): vars(space.anchor) for number, space in bring_up.spaces.items()},
            "parts": {name: vars(found[0]) for name, found in running.items() if found},
        }
        scratch = self._state_file().with_suffix(".new")
        parts.write_json(scratch, state)
        scratch.rename(self._state_file())
