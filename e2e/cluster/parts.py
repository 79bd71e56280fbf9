"""What each part of a local cluster is started with: command lines and configuration files, no processes.

The settings are those of a plain cluster, except where one machine that may be a small virtual machine or a container
itself gives less than a server does; each such place says what it works around.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e import audit
from e2e.cluster import network
from e2e.cluster.credentials import FRONT_PROXY, Credentials
from e2e.cluster.folders import API_PORT, DOMAIN, Folders, node_name

ETCD_URL = "http://127.0.0.1:2379"
DNS_PORT = 53
PAUSE_IMAGE = "localhost/pause:e2e"
# Inside the node's own /run, so the path is short and the same on every node.
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def etcd(program: Path, folders: Folders) -> list[str]:
    """A store that may lose everything in a power cut: it lives no longer than the machine is up."""
    return [
        str(program),
        f"--data-dir={folders.root / 'etcd'}",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
    ]


def api_server(program: Path, folders: Folders, *, credentials: Credentials) -> list[str]:
    ca, accounts = credentials.authority.certificate, credentials.accounts
    return [
        str(program),
        f"--etcd-servers={ETCD_URL}",
        f"--secure-port={API_PORT}",
        f"--advertise-address={network.node_address(1)}",
        f"--cert-dir={credentials.authority.folder}",
        f"--tls-cert-file={credentials.api_server.certificate}",
        f"--tls-private-key-file={credentials.api_server.key}",
        f"--client-ca-file={ca}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={accounts.certificate}",
        f"--service-account-signing-key-file={accounts.key}",
        f"--service-cluster-ip-range={network.SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-certificate-authority={ca}",
        f"--kubelet-client-certificate={credentials.admin.certificate}",
        f"--kubelet-client-key={credentials.admin.key}",
        # Node names are in no DNS that the API server asks: logs and exec would fail.
        "--kubelet-preferred-address-types=InternalIP",
        # Aggregation: what others serve, metrics.k8s.io for one, is asked for in the user's name.
        f"--requestheader-client-ca-file={ca}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={credentials.front_proxy.certificate}",
        f"--proxy-client-key-file={credentials.front_proxy.key}",
        *audit.server_arguments(folders.config("audit-policy.json"), folders.logs / audit.LOG_NAME),
    ]


def controller_manager(program: Path, credentials: Credentials) -> list[str]:
    ca = credentials.authority
    return [
        str(program),
        f"--kubeconfig={credentials.path('kube-controller-manager')}",
        f"--service-account-private-key-file={credentials.accounts.key}",
        f"--root-ca-file={ca.certificate}",
        f"--cluster-signing-cert-file={ca.certificate}",
        f"--cluster-signing-key-file={ca.key}",
        f"--cert-dir={ca.folder}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        # Half of the default, so that tests of a lost node need not wait for long.
        "--node-monitor-grace-period=20s",
    ]


def scheduler(program: Path, credentials: Credentials) -> list[str]:
    return [
        str(program),
        f"--kubeconfig={credentials.path('kube-scheduler')}",
        f"--cert-dir={credentials.authority.folder}",
        "--leader-elect=false",
    ]


def coredns(program: Path, folders: Folders) -> list[str]:
    """Cluster DNS on the address of node 1; it knows the cluster's names and refuses all others."""
    corefile = write(
        folders.config("Corefile"),
        f"""\
{DOMAIN}:{DNS_PORT} {{
    bind {network.node_address(1)}
    errors
    kubernetes {DOMAIN} {{
        kubeconfig {folders.kubeconfig}
        ttl 1
    }}
}}
""",
    )
    return [str(program), "-conf", str(corefile)]


def resolver(folders: Folders) -> Path:
    """Write the resolv.conf that commands in a node's network see; as in a pod of the namespace default."""
    return write(
        folders.resolver,
        f"nameserver {network.node_address(1)}\n"
        f"search default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\n"
        "options ndots:5 timeout:2\n",
    )


def containerd(program: Path, folders: Folders, number: int, *, cni_plugins: Path) -> list[str]:
    folder = folders.node(number)
    network_configuration = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                # One cable per pod and no bridge: traffic between two pods of a node is routed too, so a Service's
                # address is translated back there without the kernel's bridge filter.
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/pod-addresses",
                    "ranges": [[{"subnet": network.pod_subnet(number)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    write(folder / "cni" / "10-pods.conflist", json.dumps(network_configuration, indent=2))
    configuration = write(
        folder / "containerd.toml",
        f"""\
version = 2
root = {json.dumps(str(folder / "containerd"))}
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = {json.dumps(str(folder / "containerd-opt"))}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE the kernel refuses the score -998 that pods ask for, and no pod starts.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {json.dumps(str(cni_plugins))}
    conf_dir = {json.dumps(str(folder / "cni"))}
""",
    )
    return [str(program), "--config", str(configuration)]


def kubelet(program: Path, folders: Folders, number: int, *, credentials: Credentials) -> list[str]:
    folder, pair = folders.node(number), credentials.kubelets[number]
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node_address(number),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(credentials.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pair.certificate),
        "tlsPrivateKeyFile": str(pair.key),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        # No systemd to ask; and a root per kubelet, else the kubelets of one machine remove each other's pods.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folders.group}/{node_name(number)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [network.node_address(1)],
        "clusterDomain": DOMAIN,
        "resolvConf": str(folders.resolver),
        # The disk is the machine's: how full it is is no reason to evict a pod or to remove an image.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "nodeStatusUpdateFrequency": "5s",
        "serializeImagePulls": False,
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
    }
    path = write_json(folder / "kubelet.json", configuration)
    return [
        str(program),
        f"--config={path}",
        f"--kubeconfig={credentials.path(node_name(number))}",
        f"--root-dir={folder / 'kubelet'}",
        f"--hostname-override={node_name(number)}",
        f"--node-ip={network.node_address(number)}",
    ]


def kube_proxy(program: Path, folders: Folders, number: int, *, credentials: Credentials) -> list[str]:
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": node_name(number),
        "clientConnection": {"kubeconfig": str(credentials.path("kube-proxy"))},
        # 0 leaves the machine's connection tracking limits as they are; a container may not write them.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms"},
    }
    return [str(program), f"--config={write_json(folders.node(number) / 'kube-proxy.json', configuration)}"]


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Write a configuration file that its part reads as YAML."""
    return write(path, json.dumps(content, indent=2))


def write(path: Path, text: str) -> Path:
    """Write a file, its folder too, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
