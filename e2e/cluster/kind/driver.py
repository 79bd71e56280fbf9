"""The driver `kind`: see `e2e.cluster.protocol.Cluster` for what a test may ask of it.

Two ways to the same cluster, chosen by `docker.decide` and kept in the cluster's state, so that any later command finds
its way back: the user's Docker daemon with the stock node image, or a daemon and a node image of our own.

Service addresses exist only inside kind's nodes, so commands of a test run in the network of a node container, with a
resolv.conf that names the cluster's DNS: pods and Services are reached exactly as with the local driver.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.cache import cache_root, duration, say
from e2e.cluster import imagestore
from e2e.cluster.commands import Commands
from e2e.cluster.errors import ClusterError
from e2e.cluster.exclusive import lock, sigterm_as_exit
from e2e.cluster.folders import Folders
from e2e.cluster.kind import config, daemon, loading, nodeimage, state
from e2e.cluster.kind.bringup import BringUp
from e2e.cluster.kind.docker import STOCK_IMAGE, Docker, decide, find_kind, look, plain
from e2e.cluster.kind.state import State
from e2e.cluster.machine import PRIVATE, TOOLS, check_name
from e2e.cluster.node import Node, enter_network

NEEDED_BYTES = 5 * 1000**3


class KindCluster(Commands):
    """A cluster of two kind nodes."""

    def __init__(self, name: str) -> None:
        """Name a cluster; nothing is looked at or started yet.

        Args:
            name: A short DNS label. Clusters with different names run side by side.
        """
        super().__init__(name, folders_of(name))

    @property
    def kubectl_path(self) -> Path:
        return self.folders.root / "bin" / "kubectl"

    @property
    def nodes(self) -> tuple[Node, ...]:
        known = state.read(self.folders.root)
        return known.nodes if known else ()

    def up(self) -> None:
        check_machine(self.folders.root)
        own = decide(look())
        kind = find_kind()
        image = nodeimage.build() if own else None
        with lock(self.folders.root):
            if self.status()["up"]:
                say(f"the cluster {self.name} is up already")
                return
            started = time.monotonic()
            self._remove()
            self.folders.logs.mkdir(parents=True, exist_ok=True)
            how = f"a Docker daemon and a node image of its own: {own}" if own else "the stock node image"
            say(f"cluster {self.name}: {how}")
            with sigterm_as_exit():
                try:
                    docker, known = self._start_daemon(kind) if image else self._use_daemon(kind)
                    if image:
                        say(f"cluster {self.name}: node image into the daemon's store")
                        daemon.load(docker, image)
                    BringUp(self, docker, known).run(image.reference if image else STOCK_IMAGE)
                except BaseException:
                    self._remove(keep_logs=True)
                    raise
        say(f"the cluster {self.name} is up after {duration(time.monotonic() - started)}; logs in {self.logs}")

    def down(self) -> None:
        with lock(self.folders.root) as file:
            self._remove()
            file.unlink()

    def load_image(self, archive: Path) -> None:
        known = self._known()
        names = [node.name for node in known.nodes]
        cluster = config.cluster_name(self.name)
        count = loading.load(self._docker(known), archive.resolve(), cluster=cluster, nodes=names)
        say(f"{imagestore.names(archive)}: {f'loaded on {count} nodes' if count else 'on every node already'}")

    def status(self) -> dict[str, Any]:
        """Return what runs, ready for JSON: nodes, the process that holds an own daemon, and where the files are."""
        known = state.read(self.folders.root)
        anchor = known.anchor if known else None
        parts = [{"name": "docker", "pid": anchor.pid, "alive": anchor.alive}] if anchor else []
        return {
            "name": self.name,
            "driver": "kind",
            "up": known is not None and self._is_up(known),
            "kubeconfig": str(self.kubeconfig),
            "logs": str(self.logs),
            "nodes": [{"name": node.name, "address": node.address} for node in self.nodes],
            "parts": [part | {"log": str(self.logs / "dockerd.log")} for part in parts],
        }

    def enter(self, argv: Sequence[str], *, node: str | None) -> list[str]:
        known = self._known()
        names = [one.name for one in known.nodes]
        wanted = node or names[0]
        if wanted not in names:
            raise ClusterError(f"the cluster {self.name} has no node {wanted}; it has {', '.join(names)}")
        resolver = self.folders.resolver if self.folders.resolver.exists() else None
        return enter_network(self._docker(known).network_of(wanted), argv, resolver=resolver)

    def _start_daemon(self, kind: Path) -> tuple[Docker, State]:
        docker, anchor = daemon.start(self.folders, kind=kind)
        return docker, state.write(self.folders.root, State(kind=kind, anchor=anchor))

    def _use_daemon(self, kind: Path) -> tuple[Docker, State]:
        return plain(kind), state.write(self.folders.root, State(kind=kind, anchor=None))

    def _remove(self, *, keep_logs: bool = False) -> None:
        known = state.read(self.folders.root)
        if known and known.anchor is None:
            docker = plain(known.kind)
            docker.run(str(docker.kind), "delete", "cluster", f"--name={config.cluster_name(self.name)}")
        daemon.remove(self.folders, keep_logs=keep_logs)

    def _known(self) -> State:
        known = state.read(self.folders.root)
        if known is None or not known.nodes:
            raise ClusterError(
                f"no cluster {self.name} is up: `make demo CLUSTER=kind` starts the demo's, "
                f"`python -m e2e.cluster up --driver kind --name {self.name}` an empty one"
            )
        return known

    def _docker(self, known: State) -> Docker:
        return daemon.reach(self.folders, anchor=known.anchor, kind=known.kind) if known.anchor else plain(known.kind)

    def _is_up(self, known: State) -> bool:
        if not known.up:
            return False
        try:
            docker = self._docker(known)
            return all(docker.network_of(node.name).exists() for node in known.nodes)
        except ClusterError:
            return False


def folders_of(name: str) -> Folders:
    """Return the folders of the kind cluster with that name; the control group carries a hash of the folder."""
    root = cache_root() / "kind-clusters" / check_name(name)
    return Folders(root, f"penstock-kind-{name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:6]}")


def check_machine(root: Path) -> None:
    """Check that a kind cluster with that folder can run on this machine.

    Raises:
        ClusterError: It cannot; the message names everything that is in the way, not only the first.
    """
    problems = []
    if os.geteuid() != 0:
        problems.append("tests enter the network of its nodes, so run it as root (`sudo`)")
    if lacks := sorted({package for command, package in TOOLS.items() if not shutil.which(command)}):
        problems.append(f"it needs commands of the packages {', '.join(lacks)}: install them")
    if private := [folder for folder in PRIVATE if root.is_relative_to(folder)]:
        problems.append(f"the daemon has its own view of {private[0]}: set PENSTOCK_CACHE to a folder elsewhere")
    free = shutil.disk_usage(next(folder for folder in (root, *root.parents) if folder.is_dir())).free
    if free < NEEDED_BYTES:
        problems.append(f"it needs {NEEDED_BYTES / 1e9:.0f} GB of disk for {root}, and {free / 1e9:.1f} GB are free")
    if problems:
        raise ClusterError("kind does not run here: " + "; ".join(problems))
