"""From a Docker daemon that has a node image to a cluster that tests can use: `kind create` and the waits after it.

kind itself is done when the control plane is Ready. Tests need more: every node Ready and open to pods, cluster DNS and
Service addresses working, and files that tell commands in a node's network where these are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.cache import say
from e2e.cluster.commands import Commands
from e2e.cluster.errors import ClusterError
from e2e.cluster.kind import config, state
from e2e.cluster.kind.docker import Docker, last_lines
from e2e.cluster.kind.state import State
from e2e.cluster.node import Node

CREATE_SECONDS = 420
READY_SECONDS = 120
NODE_LINES = 3
WORKLOADS = ("deployment/coredns", "daemonset/kube-proxy")
CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"


class BringUp:
    """One start of a kind cluster; `cluster` runs the commands in its nodes."""

    def __init__(self, cluster: Commands, docker: Docker, known: State) -> None:
        self.cluster, self.docker, self.known = cluster, docker, known
        self.root = cluster.folders.root
        self.name = config.cluster_name(cluster.name)

    def run(self, image: str) -> None:
        """Create the cluster from a node image and wait until it works.

        Raises:
            ClusterError: It does not come up; the message holds the cause, the nodes' last words and
                where all logs are.
        """
        try:
            self._create(image)
            self._adopt()
            self._await_ready()
        except (ClusterError, subprocess.CalledProcessError) as error:
            told = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            logs = self._export_logs()
            raise ClusterError(f"the cluster {self.cluster.name} does not start: {told.strip()}\n{logs}") from error

    def _create(self, image: str) -> None:
        say(f"cluster {self.cluster.name}: kind create cluster")
        settings = self.root / "kind.yaml"
        settings.write_text(config.cluster_config(config.OWN_RANGES if self.known.anchor else None))
        options = {
            "name": self.name,
            "image": image,
            "config": settings,
            "kubeconfig": self.root / "kind.kubeconfig",
            "wait": f"{READY_SECONDS}s",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        # --retain: the nodes of a failed start have the logs that tell why.
        log = self.cluster.logs / "kind-create.log"
        self._kind("create", "cluster", "--retain", *arguments, seconds=CREATE_SECONDS, log=log)

    def _adopt(self) -> None:
        """Learn where the nodes are, and write the files that commands in their network need."""
        names = [f"{self.name}-{role}" for role in config.NODE_ROLES]
        nodes = tuple(Node(name, self.docker.address_of(name, config.NETWORK)) for name in names)
        internal = self._kind("get", "kubeconfig", "--internal", f"--name={self.name}")
        self.cluster.kubeconfig.touch(mode=0o600)
        self.cluster.kubeconfig.write_text(config.with_server(internal, nodes[0].address))
        kubectl = self.cluster.kubectl_path
        kubectl.parent.mkdir(exist_ok=True)
        self.docker.run("docker", "cp", f"{names[0]}:/usr/bin/kubectl", str(kubectl))
        self.known = state.write(self.root, self.known.but(nodes=nodes))
        address = self.cluster.kubectl(
            "-n", "kube-system", "get", "service", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"
        )
        self.cluster.folders.resolver.write_text(config.resolv_conf(address))

    def _await_ready(self) -> None:
        say(f"cluster {self.cluster.name}: nodes, DNS")
        timeout = f"--timeout={READY_SECONDS}s"
        self.cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", timeout)
        # Both nodes take pods, as with the local driver.
        self.cluster.kubectl("taint", "nodes", self.known.nodes[0].name, f"{CONTROL_PLANE_TAINT}-")
        for workload in WORKLOADS:
            self.cluster.kubectl("-n", "kube-system", "rollout", "status", workload, timeout)
        self.known = state.write(self.root, self.known.but(up=True))

    def _export_logs(self) -> str:
        """Collect what the nodes have logged; return their last words and where the rest is."""
        folder = self.cluster.logs / "kind"
        told = []
        try:
            self._kind("export", "logs", str(folder), f"--name={self.name}")
        except ClusterError:
            # Nodes that broke early have only some of the logs that kind asks for; it has kept those.
            told.append("Not all logs of the nodes could be had.")
        words = {log.parent.name: last_lines(log.read_text(), NODE_LINES) for log in folder.glob("*/serial.log")}
        told += [f"The last words of {node}:\n{words[node]}" for node in sorted(words)]
        return "\n".join([*told, f"All logs: {self.cluster.logs}"])

    def _kind(self, *arguments: str, seconds: float | None = None, log: Path | None = None) -> str:
        return self.docker.run(str(self.docker.kind), *arguments, seconds=seconds, log=log)
