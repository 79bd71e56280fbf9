"""The certificates and kubeconfigs of a local cluster: one identity per part, made anew at every start."""

from __future__ import annotations

from pathlib import Path

from e2e.cluster import network
from e2e.cluster.folders import API_PORT, DOMAIN, NODE_NUMBERS, Folders, node_name
from e2e.cluster.pki import Authority, KeyPair, signing_key

FRONT_PROXY = "front-proxy-client"
"""Who the API server is when it passes a request on to another one; the one name that may speak for others."""


class Credentials:
    """The certificates and kubeconfigs of a cluster, made anew at every start."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self.authority = authority = Authority(folders.root / "pki")
        self.accounts = signing_key(authority.folder)
        control_plane = network.node_address(1)
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}"]
        self.api_server = authority.issue(
            "apiserver",
            common_name="kube-apiserver",
            hosts=[*names, "localhost", "127.0.0.1", control_plane, network.FIRST_SERVICE],
        )
        self.admin = authority.issue("admin", common_name="admin", organizations=["system:masters"])
        self.front_proxy = authority.issue("front-proxy", common_name=FRONT_PROXY)
        self.kubelets = {
            number: authority.issue(
                node_name(number),
                common_name=f"system:node:{node_name(number)}",
                organizations=["system:nodes"],
                hosts=[node_name(number), network.node_address(number)],
            )
            for number in NODE_NUMBERS
        }
        self._kubeconfig(folders.kubeconfig, self.admin)
        for number, pair in self.kubelets.items():
            self._kubeconfig(self.path(node_name(number)), pair)
        for user in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
            self._kubeconfig(self.path(user), authority.issue(user, common_name=f"system:{user}"))

    def path(self, user: str) -> Path:
        """Return the kubeconfig of a part."""
        return self.authority.folder / f"{user}.kubeconfig"

    def _kubeconfig(self, path: Path, client: KeyPair) -> None:
        server = f"https://{network.node_address(1)}:{API_PORT}"
        self.authority.kubeconfig(path, server=server, client=client)
