"""The start of a local cluster: what is started in which order, and the fact that each step waits for.

Nothing waits for time to pass. Every wait names the part it depends on and watches all the others, so a part that dies
ends the start at once, with that part's own last words as the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from e2e.cache import say
from e2e.cluster import cgroups, debian, gobuild, imagestore, network, parts
from e2e.cluster.api import Api
from e2e.cluster.credentials import Credentials
from e2e.cluster.errors import ClusterError
from e2e.cluster.folders import API_PORT, NODE_NUMBERS, Folders, node_name
from e2e.cluster.node import Namespaces
from e2e.cluster.process import Part, wait_until
from e2e.images import pause_image

READY_SECONDS = 90
HTTPS_PORT = 443


@dataclass(frozen=True)
class Programs:
    """Everything that a cluster is made of, as files."""

    built: Mapping[str, Path]
    packages: debian.Packages
    etcd: Path
    pause: Path

    @classmethod
    def find(cls) -> Programs:
        """Build and unpack what is not in the cache yet.

        Raises:
            ClusterError: It cannot be had on this machine.
        """
        return cls(
            built={name: gobuild.binary(name) for name in gobuild.PROGRAMS},
            packages=debian.unpack(debian.NODE),
            etcd=debian.unpack(debian.ETCD).program("etcd"),
            pause=pause_image.image().archive,
        )


def containerd_client(
    space: Namespaces, packages: debian.Packages, mark: Mapping[str, str]
) -> Callable[[Sequence[str]], str]:
    """Return a function that runs containerd's command line client on a node and returns its output."""
    program = str(packages.program("ctr"))

    def ctr(arguments: Sequence[str]) -> str:
        argv = [program, f"--address={parts.CONTAINERD_SOCKET}", "--namespace=k8s.io", *arguments]
        return space.run(argv, environment={**packages.environment(), **mark})

    return ctr


@dataclass
class BringUp:
    """One start of one cluster.

    Attributes:
        name: The cluster's name, for progress lines.
        folders: Its folders, empty.
        programs: What to run.
        mark: Variable that marks the cluster's processes.
        extra: More command line arguments by part.
        spaces: The nodes' namespaces by node number, once made.
        started: The parts by name, once started.
        children: Every process that was started here.
    """

    name: str
    folders: Folders
    programs: Programs
    mark: Mapping[str, str]
    extra: Mapping[str, Sequence[str]]
    spaces: dict[int, Namespaces] = field(default_factory=dict)
    started: dict[str, Part] = field(default_factory=dict)
    children: list[Part] = field(default_factory=list)

    def run(self) -> None:
        """Start everything and return when pods can run and reach each other by Service name.

        Raises:
            ClusterError: A part died or did not become ready; what was started until then still runs.
        """
        self.folders.logs.mkdir(parents=True)
        self._progress("certificates, namespaces, network")
        credentials = Credentials(self.folders)
        parts.resolver(self.folders)
        self._make_nodes()
        self._progress("etcd, API server, containerd")
        api = self._start_api(credentials)
        for number in NODE_NUMBERS:
            self._start_containerd(number)
        self._wait(api.unready, "kube-apiserver", "a ready API server")
        self._progress("controllers, DNS, kubelets, Services")
        self._start_rest(credentials)
        self._wait_for_rest(api)

    def _make_nodes(self) -> None:
        for number in NODE_NUMBERS:
            self.spaces[number] = Namespaces.create(
                node_name(number),
                private=self.folders.node(number) / "private",
                log=self.folders.logs / f"{node_name(number)}.log",
                environment=self._environment(),
            )
            self.children += filter(None, [self.spaces[number].holder])
            cgroups.create(self.folders.group, node_name(number))
        network.join(self.spaces[1].network, self.spaces[2].network)

    def _start_api(self, credentials: Credentials) -> Api:
        self._start("etcd", parts.etcd(self.programs.etcd, self.folders))
        server = parts.api_server(self.programs.built["kube-apiserver"], self.folders, credentials=credentials)
        self._start("kube-apiserver", server)
        return Api(
            network.node_address(1),
            API_PORT,
            authority=credentials.authority,
            client=credentials.admin,
            connect=self.spaces[1].connect,
        )

    def _start_containerd(self, number: int) -> None:
        packages = self.programs.packages
        name = f"containerd-{number}"
        program = packages.program("containerd")
        argv = parts.containerd(program, self.folders, number, cni_plugins=packages.cni_plugins)
        self._start(name, argv, node=number, kind="containerd")
        ctr = containerd_client(self.spaces[number], packages, self.mark)
        self._wait(partial(_refusal, ctr), name, "an answering containerd")
        imagestore.load(self.programs.pause, ctr=ctr)

    def _start_rest(self, credentials: Credentials) -> None:
        built, folders = self.programs.built, self.folders
        manager = parts.controller_manager(built["kube-controller-manager"], credentials)
        self._start("kube-controller-manager", manager)
        self._start("kube-scheduler", parts.scheduler(built["kube-scheduler"], credentials))
        self._start("coredns", parts.coredns(built["coredns"], folders))
        for number in NODE_NUMBERS:
            kubelet = parts.kubelet(built["kubelet"], folders, number, credentials=credentials)
            self._start(f"kubelet-{number}", kubelet, node=number, kind="kubelet")
            proxy = parts.kube_proxy(built["kube-proxy"], folders, number, credentials=credentials)
            self._start(f"kube-proxy-{number}", proxy, node=number, kind="kube-proxy")

    def _wait_for_rest(self, api: Api) -> None:
        for number in NODE_NUMBERS:
            name = node_name(number)
            self._wait(partial(_node_missing, api, name), f"kubelet-{number}", f"{name} Ready")
            service = partial(_unconnected, self.spaces[number], network.FIRST_SERVICE, HTTPS_PORT)
            self._wait(service, f"kube-proxy-{number}", f"Service addresses on {name}")
        dns = partial(_unconnected, self.spaces[1], network.node_address(1), parts.DNS_PORT)
        self._wait(dns, "coredns", "cluster DNS")
        self._wait(partial(_account_missing, api), "kube-controller-manager", "the service account `default`")

    def _start(self, name: str, argv: list[str], *, node: int = 1, kind: str | None = None) -> None:
        full = [*argv, *self.extra.get(kind or name, ())]
        log = self.folders.logs / f"{name}.log"
        self.started[name] = part = self.spaces[node].start(name, full, log=log, environment=self._environment())
        self.children.append(part)

    def _wait(self, ready: Callable[[], str | None], name: str, what: str) -> None:
        wait_until(ready, what=what, part=self.started[name], others=self.started.values(), seconds=READY_SECONDS)

    def _environment(self) -> dict[str, str]:
        # Not this process's own: a proxy setting, say, would send the API server's calls to kubelets astray.
        return {**self.mark, "HOME": str(self.folders.root), "LANG": "C.UTF-8", **self.programs.packages.environment()}

    def _progress(self, text: str) -> None:
        say(f"cluster {self.name}: {text}")


def _refusal(ctr: Callable[[Sequence[str]], str]) -> str | None:
    try:
        ctr(["version"])
    except ClusterError as error:
        return str(error)
    return None


def _node_missing(api: Api, name: str) -> str | None:
    status, text = api.get(f"/api/v1/nodes/{name}")
    if status != 200:
        return f"{name} has not registered"
    conditions = {one["type"]: one for one in json.loads(text)["status"].get("conditions", [])}
    ready = conditions.get("Ready", {})
    return None if ready.get("status") == "True" else str(ready.get("message", "no condition Ready yet"))


def _account_missing(api: Api) -> str | None:
    status, _ = api.get("/api/v1/namespaces/default/serviceaccounts/default")
    return None if status == 200 else "not there"


def _unconnected(space: Namespaces, host: str, port: int) -> str | None:
    space.connect(host, port).close()
    return None
