"""etcd and a real kube-apiserver on loopback, for tests that need the API and no pods that run.

    with ControlPlane() as plane:
        client = make_client(plane.kubeconfig)

Both programs listen on ports that were free a moment ago. Somebody else may take one in between, so neither trusts a
port: etcd and the API server speak TLS under an authority made for this one control plane, and a stranger's answer
fails the handshake. A program that finds its port taken ends, and the start is tried again on other ports.

Nothing is left behind. The programs get SIGKILL from the kernel when the process that started them dies, however it
dies, and a folder whose owner is gone is removed by the next start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from e2e import cache
from e2e.cluster import debian, gobuild
from e2e.cluster.api import Api
from e2e.cluster.errors import ClusterError
from e2e.cluster.pki import Authority, KeyPair, signing_key
from e2e.cluster.process import Identity, Part, identity, last_words, wait_until

HOST = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 5
ATTEMPTS = 3
SERVICES = "198.18.32.0/24"
PORT_TAKEN = "address already in use"

# The kernel's death signal follows the thread that started the child, not the process. So all children are started by
# one thread that lives as long as the process.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="control-plane-starter")


class ControlPlane:
    """A control plane for one test session; a context manager.

    Attributes:
        kubeconfig: Path of a kubeconfig with administrator rights, complete in itself.
        server: URL of the API server.
        certificate: The administrator's client certificate and key, as files.
        authority: The authority that signed it; `authority.certificate` is what clients trust.
        logs: Folder with one log per program.
    """

    kubeconfig: Path
    server: str
    certificate: KeyPair
    authority: Authority

    def __init__(self, *, controller_manager: bool = False, extra_arguments: Sequence[str] = ()) -> None:
        """Prepare a control plane; nothing runs until `start`.

        Args:
            controller_manager: Run kube-controller-manager too: owner references are then collected, Deployments make
                ReplicaSets and pods. Without it, pods need no service account, because nobody makes one.
            extra_arguments: More command line arguments for the API server.
        """
        self._controller_manager, self._extra = controller_manager, tuple(extra_arguments)
        self._parts: list[Part] = []
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def logs(self) -> Path:
        if self._folder is None:
            raise ClusterError("the control plane is not started; use it in a `with` statement")
        return self._folder

    def start(self) -> None:
        """Start the programs and wait until the API server is ready.

        Raises:
            ClusterError: A program cannot be built or does not start; the message holds what it said last.
        """
        programs = _Programs.find(controller_manager=self._controller_manager)
        self._folder = _new_folder()
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self._start(programs)
                except ClusterError:
                    taken = any(PORT_TAKEN in last_words(part.log) for part in self._parts if part.died)
                    self._stop_parts()
                    if not taken or attempt == ATTEMPTS:
                        raise
                else:
                    return
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Stop the programs and remove their folder; harmless when nothing runs."""
        self._stop_parts()
        if self._folder is not None and not keep_logs:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def api_server(self) -> Identity:
        """The API server's process, to be paused or killed by those who test that."""
        found = identity(self._api_part.pid)
        if found is None:
            raise ClusterError("the API server does not run")
        return found

    @property
    def etcd(self) -> Store:
        """Where the store listens, and the certificate that it lets in."""
        return self._etcd

    def restart_api_server(self, *, pause_seconds: float = 0.0) -> None:
        """Kill the API server, wait, start it again on the same port and store, and wait until it is ready."""
        self._api_part.stop(grace_seconds=0)
        self._parts.remove(self._api_part)
        time.sleep(pause_seconds)
        self._start_api_server(self._api)

    def kubeconfig_for(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig for another user, to see what RBAC lets that user do.

        Args:
            user: Name that RBAC sees, `system:serviceaccount:NAMESPACE:NAME` for a service account.
            groups: Groups that RBAC sees.
        """
        file = "user-" + "".join(letter if letter.isalnum() else "-" for letter in user)
        pair = self.authority.issue(file, common_name=user, organizations=groups)
        return self.authority.kubeconfig(self.logs / f"{file}.kubeconfig", server=self.server, client=pair)

    def _start(self, programs: _Programs) -> None:
        folder = self.logs
        self.authority = authority = Authority(folder / "pki")
        self.certificate = authority.issue("admin", common_name="admin", organizations=["system:masters"])
        client_port, peer_port, port = _free_ports(3)
        self.server = f"https://{HOST}:{port}"
        self.kubeconfig = authority.kubeconfig(folder / "kubeconfig", server=self.server, client=self.certificate)
        etcd_url = f"https://{HOST}:{client_port}"
        store = authority.issue("etcd", common_name="etcd", hosts=[HOST])
        accounts = signing_key(authority.folder)
        serving = authority.issue(
            "apiserver", common_name="kube-apiserver", hosts=[HOST, "localhost", "kubernetes.default.svc"]
        )
        self._run(
            "etcd",
            str(programs.etcd),
            f"--data-dir={folder / f'etcd-{client_port}'}",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls=http://{HOST}:{peer_port}",
            f"--cert-file={store.certificate}",
            f"--key-file={store.key}",
            f"--trusted-ca-file={authority.certificate}",
            "--client-cert-auth",
            "--unsafe-no-fsync",
        )
        self._etcd = Store(etcd_url, store)
        self._api_argv = [
            str(programs.apiserver),
            f"--etcd-servers={etcd_url}",
            f"--etcd-cafile={authority.certificate}",
            f"--etcd-certfile={store.certificate}",
            f"--etcd-keyfile={store.key}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={port}",
            f"--cert-dir={authority.folder}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={authority.certificate}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            f"--service-cluster-ip-range={SERVICES}",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            *(() if programs.controller_manager else ("--disable-admission-plugins=ServiceAccount",)),
            *self._extra,
        ]
        api = Api(HOST, port, authority=authority, client=self.certificate)
        self._start_api_server(api)
        if programs.controller_manager:
            self._start_controller_manager(programs.controller_manager, api, accounts)

    def _start_api_server(self, api: Api) -> None:
        self._api = api
        self._api_part = part = self._run("kube-apiserver", *self._api_argv)
        wait_until(api.unready, what="a ready API server", part=part, others=list(self._parts), seconds=START_SECONDS)

    def _start_controller_manager(self, program: Path, api: Api, accounts: KeyPair) -> None:
        user = self.authority.issue("controller-manager", common_name="system:kube-controller-manager")
        path = self.authority.folder / "controller-manager.kubeconfig"
        manager = self._run(
            "kube-controller-manager",
            str(program),
            f"--kubeconfig={self.authority.kubeconfig(path, server=self.server, client=user)}",
            f"--service-account-private-key-file={accounts.key}",
            f"--root-ca-file={self.authority.certificate}",
            f"--cert-dir={self.authority.folder}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        )

        def accounts_made() -> str | None:
            accounts = api.list("/api/v1/namespaces/default/serviceaccounts")
            return None if accounts else "the namespace default has no service account yet"

        wait_until(accounts_made, what="a working controller manager", part=manager, seconds=START_SECONDS)

    def _run(self, name: str, *argv: str) -> Part:
        # setpriv turns into the program, so the pid is the program's own.
        command = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
        log = self.logs / f"{name}.log"
        part = _starter.submit(lambda: Part(name, command, log=log, environment=os.environ)).result()
        self._parts.append(part)
        return part

    def _stop_parts(self) -> None:
        # etcd last: the others spend seconds on saying goodbye to it when it is gone first.
        while self._parts:
            self._parts.pop().stop(grace_seconds=0)


@dataclass(frozen=True)
class Store:
    """Where etcd listens, and the client certificate that it lets in."""

    url: str
    client: KeyPair


class _Programs:
    """The programs of a control plane: from `$KUBEBUILDER_ASSETS` if that is set, else built or unpacked here."""

    def __init__(self, *, etcd: Path, apiserver: Path, controller_manager: Path | None) -> None:
        self.etcd, self.apiserver, self.controller_manager = etcd, apiserver, controller_manager

    @classmethod
    def find(cls, *, controller_manager: bool) -> Self:
        manager = gobuild.binary("kube-controller-manager") if controller_manager else None
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        if not assets:
            return cls(
                etcd=debian.unpack(debian.ETCD).program("etcd"),
                apiserver=gobuild.binary("kube-apiserver"),
                controller_manager=manager,
            )
        folder = Path(assets)
        absent = [name for name in ("etcd", "kube-apiserver") if not (folder / name).is_file()]
        if absent:
            raise ClusterError(f"KUBEBUILDER_ASSETS={assets} holds no {' and no '.join(absent)}; correct or unset it")
        return cls(etcd=folder / "etcd", apiserver=folder / "kube-apiserver", controller_manager=manager)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _new_folder() -> Path:
    """Return an empty folder named after this process, and remove those of processes that are gone."""
    root = cache.cache_root() / "control-planes"
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.iterdir():
        owner = owner_of(folder.name)
        if owner and not owner.alive:
            shutil.rmtree(folder, ignore_errors=True)
    own = identity(os.getpid())
    if own is None:
        raise ClusterError("/proc does not show this process; mount it and run this again")
    folder = root / f"{own.pid}-{own.started}-{time.monotonic_ns()}"
    folder.mkdir()
    return folder


def owner_of(folder_name: str) -> Identity | None:
    """Return the process that a folder `PID-STARTED-NUMBER` belongs to, or None if the name is of another form."""
    numbers = folder_name.split("-")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return None
    return Identity(int(numbers[0]), int(numbers[1]))


def control_plane(*, controller_manager: bool = False) -> Iterator[ControlPlane]:
    """Yield a running control plane; the body of a session-scoped pytest fixture.

    @pytest.fixture(scope="session")
    def plane():
        yield from control_plane()
    """
    with ControlPlane(controller_manager=controller_manager) as plane:
        yield plane
