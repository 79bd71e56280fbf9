"""What the local driver needs of a machine and of a cluster's name, checked before anything is started."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

from e2e.cache import cache_root
from e2e.cluster.errors import ClusterError
from e2e.cluster.folders import Folders

TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount"}
# The anchor gives every node its own view of these.
PRIVATE = ("/run", "/var/lib", "/var/log")
# A Unix socket's path may have 107 bytes, and the kubelet puts sockets this far below the cluster's folder.
LONGEST_SOCKET = "node-1/kubelet/device-plugins/kubelet.sock"
LONGEST_PATH_BYTES = 107


def check_name(name: str) -> str:
    """Return the name if a cluster may have it.

    Raises:
        ClusterError: It is no short DNS label.
    """
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,18}[a-z0-9])?", name):
        raise ClusterError(f"`{name}` is no name for a cluster: use up to 20 small letters, digits and inner hyphens")
    return name


def folders_of(name: str) -> Folders:
    """Return the folders of the cluster with that name.

    The control group carries a hash of the folder: two users of a machine may both call theirs `e2e`.
    """
    root = cache_root() / "clusters" / check_name(name)
    return Folders(root, f"penstock-{name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:6]}")


def check_machine(root: Path) -> None:
    """Check that a cluster with that folder can run on this machine.

    Raises:
        ClusterError: It cannot; the message names everything that is in the way, not only the first.
    """
    problems = []
    if os.geteuid() != 0:
        problems.append(
            "it makes namespaces and control groups, so run it as root (`sudo`, or in a privileged container)"
        )
    if lacks := sorted({package for command, package in TOOLS.items() if not shutil.which(command)}):
        problems.append(f"it needs commands of the packages {', '.join(lacks)}: install them")
    if private := [folder for folder in PRIVATE if root.is_relative_to(folder)]:
        problems.append(f"a node has its own view of {private[0]}: set PENSTOCK_CACHE to a folder elsewhere")
    if len(os.fsencode(root / LONGEST_SOCKET)) > LONGEST_PATH_BYTES:
        problems.append(f"the names of sockets below {root} get too long: set PENSTOCK_CACHE to a shorter path")
    if problems:
        raise ClusterError("the local cluster does not run here: " + "; ".join(problems))
