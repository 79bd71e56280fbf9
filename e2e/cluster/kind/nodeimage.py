"""The node image, built here for machines that cannot pull the stock one.

kind asks a node image for a system with systemd, containerd, kubeadm and the kubelet, and for the Kubernetes images in
containerd's own store. All of it is made from parts that are built or unpacked on this machine: each Kubernetes image
is one layer around one compiled program, imported by the node's own containerd, run once in the node's system.

The image has two layers: the system (`system`), and what comes on top (`node/`, the programs, containerd's store).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from e2e import cache
from e2e.cluster.errors import ClusterError
from e2e.cluster.gobuild import KUBERNETES_VERSION
from e2e.cluster.kind import config, programs, system
from e2e.images import archive
from e2e.images.archive import Config, Image

FILES = Path(__file__).parent / "node"
IMPORT = Path(__file__).parent / "import.sh"
VERSION = f"v{KUBERNETES_VERSION}"

NODE_PROGRAMS = ("crictl", "kubeadm", "kubectl", "kubelet")
SERVED_PROGRAMS = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "pause",
)
ENABLED_UNITS = ("containerd.service", "kubelet.service")
IPTABLES_NAMES = tuple(
    f"{prefix}{suffix}" for prefix in ("iptables", "ip6tables") for suffix in ("", "-save", "-restore")
)
PODNET = "localhost/podnet:1"
NODE_CONFIG = Config(entrypoint=("/usr/local/bin/entrypoint", "/sbin/init"), environment={"container": "docker"})
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build() -> Image:
    """Return the node image, built on first use with every program that goes in.

    Raises:
        ClusterError: A part cannot be built here; the message says which and why.
    """
    built = {name: programs.binary(name) for name in (*NODE_PROGRAMS, *SERVED_PROGRAMS, "podnet")}
    # A program's path ends with the hash of what it is made of.
    paths = [str(path.relative_to(cache.cache_root())) for path in built.values()]
    sources = [Path(__file__), FILES, IMPORT, Path(config.__file__), Path(archive.__file__)]
    key = cache.digest(system.key(), *paths, *sources)
    reference = f"localhost/kind-node:{key[:12]}"
    system_root = system.root()

    def recipe(folder: Path) -> None:
        _make(folder, system_root=system_root, built=built, reference=reference)

    return Image(reference, cache.build("kind-node", key, recipe, usually="1 min") / "image.tar")


def _make(folder: Path, *, system_root: Path, built: Mapping[str, Path], reference: str) -> None:
    scratch = folder / "scratch"
    store, images = scratch / "containerd", scratch / "images"
    for one in (store, images):
        one.mkdir(parents=True)
    _write_images(images, built=built, libraries=_iptables(system_root, scratch))
    _import(images, store=store, system_root=system_root)
    layers = [scratch / "system.tar", scratch / "node.tar"]
    archive.write_layer(layers[0], {"/": system_root}, keep_owners=True)
    contents = {"/": _files(scratch / "files"), "/var/lib/containerd": store}
    contents |= {f"/usr/bin/{name}": built[name] for name in NODE_PROGRAMS}
    archive.write_layer(layers[1], contents)
    archive.write_archive(folder / "image.tar", reference, layers, NODE_CONFIG)
    shutil.rmtree(scratch)


def _files(folder: Path) -> Path:
    """Copy `node/` and add what depends on versions and ranges."""
    shutil.copytree(FILES, folder)
    (folder / "kind/version").write_text(f"{VERSION}\n")
    (folder / "kind/ranges").write_text(config.node_ranges(config.OWN_RANGES))
    wants = folder / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    for unit in ENABLED_UNITS:
        (wants / unit).symlink_to(f"/etc/systemd/system/{unit}")
    for empty in ("etc/kubernetes/manifests", "etc/cni/net.d", "var/lib/kubelet"):
        (folder / empty).mkdir(parents=True)
    return folder


def _write_images(folder: Path, *, built: Mapping[str, Path], libraries: Mapping[str, Path]) -> None:
    wanted = _run([str(built["kubeadm"]), "config", "images", "list", "--kubernetes-version", VERSION]).split()
    references = {program_of(reference): reference for reference in wanted} | {"podnet": PODNET}
    pause = f'"{references["pause"]}"'
    if pause not in (FILES / "etc/containerd/config.toml").read_text():
        raise ClusterError(
            f"kubeadm {VERSION} wants {pause}: name it as sandbox_image in node/etc/containerd/config.toml"
        )
    for program, reference in references.items():
        target = f"/usr/local/bin/{program}"
        contents = {target: built[program], **(libraries if program == "kube-proxy" else {})}
        layer = folder / f"{program}.layer"
        archive.write_layer(layer, contents)
        how = Config(entrypoint=(target,), environment={"PATH": IMAGE_PATH})
        archive.write_archive(folder / f"{program}.tar", reference, [layer], how)
        layer.unlink()


def program_of(reference: str) -> str:
    """Return the program of an image that kubeadm names: `registry.k8s.io/coredns/coredns:v1.12.1` is `coredns`."""
    return reference.rpartition("/")[2].partition(":")[0]


def _iptables(system_root: Path, scratch: Path) -> dict[str, Path]:
    """Return what kube-proxy's image needs to call iptables: the program, its names, modules and all their libraries.

    A module whose library is absent makes kube-proxy's rules fail only later, for example `statistic` (it needs libm)
    as soon as a Service has two endpoints. So the libraries of every module are taken.
    """
    links = scratch / "iptables"
    links.mkdir()
    for name in IPTABLES_NAMES:
        (links / name).symlink_to("xtables-nft-multi")
    program = "/usr/sbin/xtables-nft-multi"
    (modules,) = system_root.glob("usr/lib/*/xtables")
    inside = f"/{modules.relative_to(system_root)}"
    listed = _run(["chroot", str(system_root), "sh", "-c", f"ldd {program} {inside}/*.so"])
    contents = {f"/usr/sbin/{name}": links / name for name in IPTABLES_NAMES}
    contents |= {program: system_root / program[1:], inside: modules}
    return contents | {path: (system_root / path[1:]).resolve() for path in libraries_of(listed)}


def libraries_of(listed: str) -> list[str]:
    """Return the sorted absolute paths of the libraries that this output of ldd names."""
    return sorted(set(re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", listed, flags=re.MULTILINE)))


def _import(images: Path, *, store: Path, system_root: Path) -> None:
    # Namespaces of its own: mounts and the containerd inside go away with the script, however it ends.
    isolate = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", str(IMPORT)]
    _run([*isolate, str(system_root), str(store), str(images)])
    shutil.rmtree(store / "tmpmounts", ignore_errors=True)


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise ClusterError(f"`{' '.join(argv)}` failed:\n{reason}")
    return done.stdout
