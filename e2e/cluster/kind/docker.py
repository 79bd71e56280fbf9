"""A Docker daemon as the driver uses it, whoever runs it: a way to run `docker` and `kind` where it is reachable.

Which daemon and which node image is decided in one place, `decide`, from three facts that `look` finds out. The stock
image needs cgroup v2 (its kubelet refuses v1) and a registry; without either, daemon and image are both our own,
since a machine that lacks one of them usually also lacks what the daemon needs for privileged containers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.kind import programs

STOCK_IMAGE = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
"""What kind 0.33.0 uses by itself; named here so that another kind on the PATH makes the same nodes."""

PROBE_SECONDS = 20
PULL_SECONDS = 600


@dataclass(frozen=True)
class Docker:
    """A daemon that answers.

    Attributes:
        kind: Path of the kind program.
        environment: Variables for `docker` and `kind`.
        enter: Turns a command line into one that runs where the daemon is reachable.
        processes: The folder in which the daemon's process numbers are those of `docker inspect`.
    """

    kind: Path
    environment: Mapping[str, str]
    enter: Callable[[Sequence[str]], list[str]]
    processes: Path

    def run(self, *argv: str, seconds: float | None = None, log: Path | None = None) -> str:
        """Run `docker` or `kind` and return its standard output.

        Args:
            argv: The command.
            seconds: How long it may take.
            log: File for all that it says.

        Raises:
            ClusterError: It failed; the message holds what it said last.
        """
        shown = shlex.join([Path(argv[0]).name, *argv[1:]])
        try:
            done = subprocess.run(
                self.enter(argv),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"`{shown}` has not ended after {seconds:g} s") from error
        if log:
            log.write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            raise ClusterError(f"`{shown}` failed:\n{last_lines(done.stderr or done.stdout)}")
        return done.stdout

    def network_of(self, container: str) -> Path:
        """Return the file that stands for the network namespace of a running container.

        Raises:
            ClusterError: There is no such container, or its processes are on another machine.
        """
        number = int(self.run("docker", "inspect", "--format", "{{.State.Pid}}", container))
        file = self.processes / str(number) / "ns" / "net"
        if number == 0 or not file.exists():
            raise ClusterError(
                f"the node container {container} does not run on this machine: tests enter its network, which needs a "
                "Linux Docker engine here; run them where the Docker daemon is"
            )
        return file

    def address_of(self, container: str, network: str) -> str:
        """Return a container's IPv4 address in a Docker network."""
        found = json.loads(self.run("docker", "inspect", "--format", "{{json .NetworkSettings.Networks}}", container))
        return str(found[network]["IPAddress"])


@dataclass(frozen=True)
class Machine:
    """What the choice depends on.

    Attributes:
        docker: Why no Docker daemon answers, or None if one does.
        cgroups: The daemon's cgroup version, `1` or `2`; empty without a daemon.
        image: Why the stock image is out of reach, or None if it is there.
    """

    docker: str | None
    cgroups: str = ""
    image: str | None = None


def decide(machine: Machine) -> str | None:
    """Return why a daemon and an image of our own are needed, or None if the user's daemon and the stock image do."""
    if machine.docker is not None:
        return f"no Docker daemon answers ({machine.docker})"
    if machine.cgroups != "2":
        return f"the stock node image needs cgroup v2, and Docker here has v{machine.cgroups or '?'}"
    if machine.image is not None:
        return f"the stock node image cannot be pulled ({machine.image})"
    return None


def look() -> Machine:
    """Find out what this machine offers; pulls the stock image if a daemon answers."""
    if not shutil.which("docker"):
        return Machine(docker="no `docker` on the PATH")
    try:
        cgroups = plain().run("docker", "info", "--format", "{{.CgroupVersion}}", seconds=PROBE_SECONDS).strip()
    except ClusterError as error:
        return Machine(docker=_reason(error))
    if cgroups != "2":
        return Machine(docker=None, cgroups=cgroups)
    try:
        plain().run("docker", "image", "inspect", STOCK_IMAGE, seconds=PROBE_SECONDS)
    except ClusterError:
        try:
            plain().run("docker", "pull", "--quiet", STOCK_IMAGE, seconds=PULL_SECONDS)
        except ClusterError as error:
            return Machine(docker=None, cgroups=cgroups, image=_reason(error))
    return Machine(docker=None, cgroups=cgroups)


def plain(kind: Path = Path("kind")) -> Docker:
    """Return the daemon that `docker` reaches by itself."""
    return Docker(kind=kind, environment=os.environ, enter=list, processes=Path("/proc"))


def find_kind() -> Path:
    """Return kind from the PATH if it is recent enough, else one built from its Go module.

    Raises:
        ClusterError: It has to be built and cannot be.
    """
    found = shutil.which("kind")
    if found:
        told = subprocess.run([found, "version"], capture_output=True, text=True, check=False).stdout
        if is_recent(told):
            return Path(found)
    return programs.binary("kind")


def is_recent(told: str) -> bool:
    """Return whether `kind version` tells at least the version that the stock image belongs to."""
    match = re.search(r"\bv(\d+)\.(\d+)\.(\d+)", told)
    return match is not None and tuple(map(int, match.groups())) >= programs.KIND_VERSION


def last_lines(text: str, count: int = 8) -> str:
    """Return what a program said last, indented: from where it says ERROR if it does, else the last lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("ERROR")]
    chosen = lines[errors[-1] :][:count] if errors else lines[-count:]
    return "\n".join(f"  {line}" for line in chosen) or "  (it said nothing)"


def _reason(error: ClusterError) -> str:
    return str(error).splitlines()[-1].strip()
