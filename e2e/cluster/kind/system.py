"""The system inside a node: a small Debian with systemd, containerd and the tools that kubeadm and kubelet call.

debootstrap makes it as a folder, which serves twice: as the lower layer of the node image, and as the place where a
containerd of exactly the node's version unpacks the Kubernetes images.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from e2e import cache
from e2e.cluster import debian
from e2e.cluster.errors import ClusterError

SUITE = "bookworm"
PACKAGES = (
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "dbus",
    "ebtables",
    "ethtool",
    "iproute2",
    "iptables",
    "kmod",
    "libseccomp2",
    "mount",
    "nftables",
    "procps",
    "runc",
    "socat",
    "systemd",
    "systemd-sysv",
    "util-linux",
)

REMOVED = (
    "usr/share/doc/*/changelog*",
    "usr/share/locale/*",
    "usr/share/man/*",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*.deb",
    "var/lib/apt/lists/*",
    "var/log/*",
    # A node starts containerd, the kubelet and what they need; devices and logins are the host's.
    "etc/systemd/system/*.wants/*",
    "lib/systemd/system/basic.target.wants/*",
    "lib/systemd/system/local-fs.target.wants/*",
    "lib/systemd/system/multi-user.target.wants/*",
    "lib/systemd/system/sockets.target.wants/*initctl*",
    "lib/systemd/system/sockets.target.wants/*udev*",
    "lib/systemd/system/sysinit.target.wants/*binfmt*",
    "lib/systemd/system/sysinit.target.wants/*firstboot*",
    "lib/systemd/system/sysinit.target.wants/*hwdb*",
    "lib/systemd/system/sysinit.target.wants/*modules-load*",
    "lib/systemd/system/sysinit.target.wants/*udev*",
    "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
)
MASKED = (
    "console-getty.service",
    "dev-hugepages.mount",
    "getty.target",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-binfmt.service",
    "systemd-logind.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-udevd.service",
)


def key() -> str:
    """Return the hash that changes when the system has to be made anew."""
    return cache.digest(Path(__file__), platform.machine())


def root() -> Path:
    """Return the folder that holds the system, made on first use; it is shared and must not be written to.

    Raises:
        ClusterError: This machine has no apt, is not run as root, or no mirror answers.
    """
    return cache.build("kind-system", key(), _make, usually="1 min") / "root"


def _make(folder: Path) -> None:
    made = folder / "root"
    _debootstrap(made)
    for pattern in REMOVED:
        for path in made.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    units = made / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (made / "var/lib/containerd").mkdir(exist_ok=True)


def _debootstrap(target: Path) -> None:
    tools = debian.unpack(("debootstrap", "debian-archive-keyring"))
    environment = {**os.environ, **tools.environment(), "DEBOOTSTRAP_DIR": str(tools.root / "usr/share/debootstrap")}
    # The tools' libraries are not for the programs of the new system, which debootstrap runs as well.
    environment.pop("LD_LIBRARY_PATH")
    keyring = tools.root / "usr/share/keyrings/debian-archive-keyring.gpg"
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", f"--keyring={keyring}"]
    # A mount namespace of its own: what debootstrap mounts goes away with it, however it ends.
    argv = [
        "unshare",
        "--mount",
        str(tools.program("debootstrap")),
        *options,
        SUITE,
        str(target),
        *debian.mirror(SUITE),
    ]
    done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise ClusterError(f"debootstrap cannot make the node's system:\n{reason}\nAre Debian's mirrors reachable?")
