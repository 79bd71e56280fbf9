"""A Docker daemon of our own, for machines where none answers.

Debian's docker.io is unpacked, never installed: its start script would start a daemon in the machine's own network. The
daemon runs in namespaces of its own (`e2e.cluster.node`): a network that no link joins to the outside, a mount
namespace, so that the machine never sees a container's mount, and a process namespace, so that nothing that it started
outlives it. Its containers have one control group that belongs to the cluster.

So removing it is the same after a crash as after a good run, see `e2e.cluster.cleanup`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from e2e.cluster import cleanup, debian, process
from e2e.cluster.errors import ClusterError
from e2e.cluster.folders import Folders
from e2e.cluster.kind import config, runc_allowed
from e2e.cluster.kind.docker import Docker, last_lines
from e2e.cluster.node import Namespaces
from e2e.cluster.process import Identity, Part
from e2e.images.archive import Image

PACKAGES = ("docker.io", "tini", "containerd", "runc", "iptables")
HOST_NAME = "docker"
SOCKET = "unix:///run/docker.sock"
RUNTIME = "runc-allowed"
START_SECONDS = 60
PROBE_SECONDS = 5

# kind mounts this folder into its nodes, so Docker makes it where it is missing; the note in the cluster's folder tells
# `remove` that it was.
MODULES = Path("/lib/modules")
MODULES_NOTE = "made-lib-modules"


def start(folders: Folders, *, kind: Path) -> tuple[Docker, Identity]:
    """Start the daemon of a cluster.

    Args:
        folders: The cluster's folders; its logs' folder exists.
        kind: Path of the kind program.

    Returns:
        The daemon, and the process that holds its namespaces.

    Raises:
        ClusterError: It cannot run here; the message holds its last words.
    """
    packages = debian.unpack(PACKAGES)
    environment = _environment(folders, packages)
    if not MODULES.exists():
        (folders.root / MODULES_NOTE).touch()
    private = folders.root / "private"
    log = folders.logs / "namespaces.log"
    namespaces = Namespaces.create(HOST_NAME, private=private, log=log, environment=environment)
    docker = reach(folders, anchor=namespaces.anchor, kind=kind)
    argv = namespaces.enter_all([str(packages.program("dockerd")), f"--config-file={_settings(folders)}"])
    part = Part("dockerd", argv, log=folders.logs / "dockerd.log", environment=environment)

    def answers() -> str | None:
        try:
            docker.run("docker", "version", seconds=PROBE_SECONDS)
        except ClusterError as error:
            return str(error).splitlines()[-1].strip()
        return None

    process.wait_until(answers, what="an answering Docker daemon", part=part, seconds=START_SECONDS)
    docker.run("docker", "network", "create", "--subnet", config.OWN_RANGES.nodes, config.NETWORK)
    return docker, namespaces.anchor


def reach(folders: Folders, *, anchor: Identity, kind: Path) -> Docker:
    """Return the way to the daemon in the namespaces that this process holds."""
    return Docker(
        kind=kind,
        environment=_environment(folders, debian.unpack(PACKAGES)),
        enter=Namespaces(anchor).enter_all,
        processes=Path(f"/proc/{anchor.pid}/root/proc"),
    )


def load(docker: Docker, image: Image) -> None:
    """Bring an image into the daemon's store.

    Raises:
        ClusterError: Docker refuses it; the message holds what it said.
    """
    told = docker.run("docker", "load", "--quiet", "--input", str(image.archive))
    if image.reference not in told:
        raise ClusterError(f"`docker load` did not bring {image.reference}:\n{last_lines(told)}")


def remove(folders: Folders, *, keep_logs: bool = False) -> None:
    """Remove the daemon of a cluster with its containers, images and volumes, and all files; harmless without one.

    Args:
        folders: The cluster's folders.
        keep_logs: Leave the logs, for somebody who has to find out why it failed.

    Raises:
        ClusterError: Something could not be removed; the message names it.
    """
    made_modules = (folders.root / MODULES_NOTE).exists()
    cleanup.remove(folders, keep_logs=keep_logs)
    if made_modules and MODULES.is_dir() and not any(MODULES.iterdir()):
        MODULES.rmdir()


def _environment(folders: Folders, packages: debian.Packages) -> dict[str, str]:
    name, _, value = cleanup.mark(folders.root).partition("=")
    return {**os.environ, **packages.environment(), "DOCKER_HOST": SOCKET, name: value}


def _settings(folders: Folders) -> Path:
    """Write the daemon's configuration file and return its path."""
    # Paths below /run are in the daemon's own /run.
    settings = {
        "data-root": str(folders.root / "docker"),
        "exec-root": "/run/docker",
        "pidfile": "/run/docker.pid",
        "hosts": [SOCKET],
        "deprecated-key-path": str(folders.root / "key.json"),  # else it writes to /etc/docker
        "bridge": "none",
        "storage-driver": "overlay2",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "cgroup-parent": f"/{folders.group}",
        "runtimes": {RUNTIME: {"path": str(_runtime(folders))}},
        "default-runtime": RUNTIME,
    }
    file = folders.root / "daemon.json"
    file.write_text(json.dumps(settings, indent=2))
    return file


def _runtime(folders: Folders) -> Path:
    """Write the program that Docker calls instead of runc, see `runc_allowed`, and return its path."""
    program = folders.root / RUNTIME
    command = shlex.join([sys.executable, "-I", "-S", runc_allowed.__file__])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    return program
