"""Removal of a cluster, from nothing but its folder: also after a crash, a power cut, or a killed `up`.

Everything that runs for a cluster has the cluster's mark in its environment or is inside a pid namespace whose first
process has. Killing the marked processes therefore ends the containers too, and the mounts and network devices of the
nodes go with the last process that sees them. What is left is control groups and files.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster import cgroups
from e2e.cluster.errors import ClusterError
from e2e.cluster.folders import Folders
from e2e.cluster.process import end, marked

MARK = "PENSTOCK_CLUSTER"


def mark(root: Path) -> str:
    """Return the entry of the environment that marks the processes of the cluster with that folder."""
    return f"{MARK}={root}"


def remove(folders: Folders, *, keep_logs: bool = False) -> None:
    """End and remove everything that belongs to a cluster; harmless when there is nothing.

    Args:
        folders: The cluster's folders.
        keep_logs: Leave the logs, for somebody who has to find out why it failed.

    Raises:
        ClusterError: Something could not be removed; the message names it.
    """
    # A process may start another between being seen and being killed: look until there is none.
    while found := marked(mark(folders.root)):
        if left := end(found, grace_seconds=0):
            pids = ", ".join(str(process.pid) for process in left)
            raise ClusterError(f"processes {pids} cannot be killed; they wait for the kernel. Try again later")
    if groups := cgroups.remove(folders.group):
        raise ClusterError(f"control group {groups[0]} is still in use; `cat {groups[0]}/cgroup.procs` shows by what")
    _unmount(folders.root)
    _remove_files(folders, keep_logs=keep_logs)


def below(folder: Path, mounts: Iterable[cgroups.Mount]) -> list[Path]:
    """Return the mount points in or at a folder, innermost first."""
    found = [mount.target for mount in mounts if mount.target.is_relative_to(folder)]
    return sorted(found, key=lambda target: len(target.parts), reverse=True)


def _unmount(folder: Path) -> None:
    """Take off what somebody mounted in the cluster's folder by hand: removing files must not reach through it."""
    for target in below(folder, cgroups.mounts()):
        done = subprocess.run(["umount", "--lazy", str(target)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"{target} cannot be unmounted: {done.stderr.strip()}")


def _remove_files(folders: Folders, *, keep_logs: bool) -> None:
    if not folders.root.is_dir():
        return
    for path in folders.root.iterdir():
        if keep_logs and path == folders.logs:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not keep_logs:
        folders.root.rmdir()
