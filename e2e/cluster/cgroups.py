"""Control groups of a cluster: one subtree of its own in every hierarchy, for both layouts that kernels have.

The machine's groups are never moved, and only folders below the cluster's own name are made or removed. With cgroup v1
there is a hierarchy per controller, and a new cpuset group is unusable until it has been given processors and memory
nodes; with cgroup v2 there is one hierarchy, and a group has only the controllers that its parent hands down.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
REMOVE_SECONDS = 10
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Mount:
    """One line of /proc/mounts."""

    target: Path
    kind: str
    options: tuple[str, ...]


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts that /proc/mounts lists, its octal escapes undone."""
    mounts = []
    for line in text.splitlines():
        _, target, kind, options, *_ = line.split(" ")
        mounts.append(Mount(Path(_unescape(target)), kind, tuple(options.split(","))))
    return mounts


def mounts() -> list[Mount]:
    """Return the mounts of this process's mount namespace."""
    return parse_mounts(Path("/proc/mounts").read_text())


def hierarchies(mounted: Iterable[Mount]) -> list[Mount]:
    """Return the mounts that are roots of control group hierarchies, of both versions."""
    return [mount for mount in mounted if mount.kind in {"cgroup", "cgroup2"}]


def create(*groups: str) -> None:
    """Make a path of nested groups, each below the one before, in every hierarchy.

    Raises:
        ClusterError: This machine shows no control groups, or does not let them be made.
    """
    found = hierarchies(mounts())
    if not found:
        raise ClusterError("no control groups are mounted here (/sys/fs/cgroup); containers need them")
    only = all(mount.kind == "cgroup2" for mount in found)
    for mount in found:
        folder = mount.target
        for group in groups:
            if only:
                _hand_down(folder)
            above, folder = folder, folder / group
            try:
                folder.mkdir(exist_ok=True)
                if "cpuset" in mount.options:
                    for file in CPUSET_FILES:
                        (folder / file).write_text((above / file).read_text())
            except OSError as error:
                raise ClusterError(
                    f"control group {folder} cannot be made: {error.strerror}; run this as root"
                ) from error


def _hand_down(folder: Path) -> None:
    """Let the groups below a cgroup v2 folder use the controllers that the folder has."""
    present = (folder / "cgroup.controllers").read_text().split()
    wanted = [controller for controller in CONTROLLERS if controller in present]
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))
    except OSError as error:
        raise ClusterError(
            f"{folder} does not hand down {', '.join(wanted)}: {error.strerror}; "
            "in a container, move its processes into a group below the root first"
        ) from error


def remove(group: str) -> list[Path]:
    """Remove a top group with everything below it from every hierarchy; return what could not be removed.

    A group cannot go before its last process has, and the kernel may need a moment for that.
    """
    tops = [mount.target / group for mount in hierarchies(mounts())]
    deadline = time.monotonic() + REMOVE_SECONDS
    while left := [folder for top in tops for folder in _remove_tree(top)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(POLL_SECONDS)
    return []


def _remove_tree(top: Path) -> list[Path]:
    if not top.is_dir():
        return []
    left = []
    folders = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: len(path.parts), reverse=True)
    for folder in [*folders, top]:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            left.append(folder)
    return left


def _unescape(text: str) -> str:
    # The kernel writes blanks, tabs, newlines and backslashes of a path as three octal digits.
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
