"""Kubernetes, CoreDNS and the pause program, compiled from the Go modules that `go/` pins.

Nothing ready-made is downloaded: a `go.mod` names one version of each program, its `go.sum` the hash of every module
that goes in, and the Go module proxy serves the source. Each program is a cache entry of its own, so a test that wants
only the API server does not wait for a kubelet; Go's own build cache shares the compiled packages between them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e import cache
from e2e.cluster.errors import ClusterError

KUBERNETES_VERSION = "1.34.4"
MINIMUM_GO = (1, 26, 8)

MODULES = Path(__file__).parent / "go"


def kubernetes_stamp(version: str) -> str:
    """Return the linker flags that write a version of Kubernetes into its programs.

    Without them the programs report version 0.0.0, and clients that look at the version refuse to talk to them.
    """
    major, minor, _ = version.split(".")
    return " ".join(
        f"-X {package}.{name}"
        for package, name in (
            ("k8s.io/component-base/version", f"gitVersion=v{version}"),
            ("k8s.io/component-base/version", f"gitMajor={major}"),
            ("k8s.io/component-base/version", f"gitMinor={minor}"),
            ("k8s.io/client-go/pkg/version", f"gitVersion=v{version}"),
        )
    )


@dataclass(frozen=True)
class Program:
    """One program and where its source comes from.

    Attributes:
        module: Folder, below `go/` or absolute, whose `go.mod` and `go.sum` pin the source.
        package: Go package of the program.
        stamp: Linker flags that write the version into it.
        tags: Build tags, separated by commas, for source that does not compile without.
        usually: How long a first build takes on two cores, for people.
    """

    module: str
    package: str
    stamp: str = ""
    tags: str = ""
    usually: str = "1 min"

    @property
    def linker_flags(self) -> str:
        return f"-s -w {self.stamp}".strip()


def _kubernetes(name: str, *, usually: str = "1 min") -> Program:
    return Program(
        "kubernetes", f"k8s.io/kubernetes/cmd/{name}", stamp=kubernetes_stamp(KUBERNETES_VERSION), usually=usually
    )


PROGRAMS = {
    "kube-apiserver": _kubernetes("kube-apiserver", usually="4 min"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kube-proxy": _kubernetes("kube-proxy"),
    "kubelet": _kubernetes("kubelet"),
    "kubectl": _kubernetes("kubectl"),
    "coredns": Program("coredns", "github.com/coredns/coredns", usually="2 min"),
    "pause": Program("pause", ".", usually="5 s"),
}


def binary(name: str) -> Path:
    """Return the path of a program of `PROGRAMS`, compiled on first use.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    return build(name, PROGRAMS[name])


def build(name: str, program: Program) -> Path:
    """Return the path of a program, compiled on first use and kept under `name`.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    go = find_go()
    key = _key(program, go)
    built = cache.build(name, key, lambda scratch: _compile(go, program, scratch / name), usually=program.usually)
    return built / name


def path_of(name: str, program: Program) -> Path:
    """Return where a program is kept under `name` once it is compiled; nothing is compiled now.

    Raises:
        ClusterError: Go is missing or too old.
    """
    return cache.cache_root() / name / _key(program, find_go()) / name


def _key(program: Program, go: Go) -> str:
    tags = (program.tags,) if program.tags else ()
    return cache.digest(MODULES / program.module, program.package, program.linker_flags, go.version, *tags)


@dataclass(frozen=True)
class Go:
    """The Go command of this machine and the version it reports, as `go1.26.8`."""

    command: str
    version: str


def find_go() -> Go:
    """Return the Go command of this machine.

    Raises:
        ClusterError: It is missing or older than `MINIMUM_GO`.
    """
    command = shutil.which("go")
    wanted = ".".join(map(str, MINIMUM_GO))
    if command is None:
        raise ClusterError(f"the Go compiler is not on the PATH; install Go {wanted} or newer and run this again")
    version = subprocess.run(
        [command, "env", "GOVERSION"], env=_environment(), capture_output=True, text=True, check=True
    ).stdout.strip()
    if not is_recent(version):
        raise ClusterError(f"{command} is {version}, but Go {wanted} or newer is needed; install it and run this again")
    return Go(command, version)


def is_recent(version: str) -> bool:
    """Return whether a version as `go env GOVERSION` prints it is at least `MINIMUM_GO`.

    A release candidate counts as the release before it, and a development build, which has no number, as too old.
    """
    match = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?(rc|beta)?", version)
    if match is None:
        return False
    patch = -1 if match[4] else int(match[3] or 0)
    return (int(match[1]), int(match[2]), patch) >= MINIMUM_GO


def _compile(go: Go, program: Program, output: Path) -> None:
    # The same flags on every machine: -trimpath keeps folder names out of the result and out of Go's cache keys.
    tags = ["-tags", program.tags] if program.tags else []
    flags = ["-trimpath", *tags, "-ldflags", program.linker_flags]
    argv = [go.command, "build", *flags, "-o", str(output), program.package]
    done = subprocess.run(
        argv,
        cwd=MODULES / program.module,
        env=_environment(),
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise ClusterError(f"go cannot build {program.package}:\n{reason}\nIs the Go module proxy reachable?")


def _environment() -> dict[str, str]:
    # GOTOOLCHAIN=local: a compiler that is too old is said in a sentence, not replaced behind the user's back.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
