"""The real helm, compiled from the Go module that `cluster/go/helm` pins and kept as every other program is.

It renders the chart for `deploy/install.yaml`, judges it in `tests/charts`, and installs Penstock on the clusters of
`make demo` and `make e2e`. Its first build takes two minutes; whoever can do without it asks `present`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.cluster import gobuild
from e2e.cluster.errors import ClusterError
from e2e.cluster.gobuild import Program

VERSION = "4.3.1"
PROGRAM = Program(
    "helm",
    "helm.sh/helm/v4/cmd/helm",
    # Without it the program reports only its minor version.
    stamp=f"-X helm.sh/helm/v4/internal/version.version=v{VERSION}",
    usually="2 min",
)

REPOSITORY = Path(__file__).resolve().parent.parent
CHART = REPOSITORY / "charts" / "penstock"


class HelmFailed(RuntimeError):  # noqa: N818 - says what happened
    """helm refused; the text is what it said."""


def binary() -> Path:
    """Return the path of helm, compiled on first use.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    return gobuild.build("helm", PROGRAM)


def present() -> bool:
    """Return whether helm is compiled already."""
    try:
        return gobuild.path_of("helm", PROGRAM).is_file()
    except ClusterError:
        return False


def command(*arguments: str | Path, home: Path) -> list[str]:
    """Return the command line of helm, with `home` for its own files: no plugin or repository of the user's counts."""
    folders = [f"HELM_{name}_HOME={home / name.lower()}" for name in ("CACHE", "CONFIG", "DATA")]
    return ["env", *folders, str(binary()), *map(str, arguments)]


def run(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run helm and return what it printed.

    Args:
        arguments: What follows `helm`.
        kubeconfig: The cluster; without it helm reaches none, not even one of the user's.

    Raises:
        HelmFailed: It refused.
        ClusterError: It cannot be compiled.
    """
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    with tempfile.TemporaryDirectory(prefix="penstock-helm-") as home:
        environment["KUBECONFIG"] = str(kubeconfig or Path(home) / "none")
        argv = command(*arguments, home=Path(home))
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmFailed(done.stderr.strip())
    return done.stdout


def template(
    *,
    values: Mapping[str, Any] | None = None,
    release: str = "penstock",
    namespace: str = "penstock-system",
    chart: Path = CHART,
    arguments: tuple[str, ...] = (),
) -> str:
    """Return the chart rendered with these values, as YAML.

    Raises:
        HelmFailed: The values are refused, or a template fails.
        ClusterError: helm cannot be compiled.
    """
    return run("template", release, chart, "--namespace", namespace, *value_arguments(values or {}), *arguments)


def value_arguments(values: Mapping[str, Any]) -> list[str]:
    """Return the flags that set values, by their path: `{"image.tag": "1.0", "watchNamespaces": ["a"]}`."""
    return [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]


def image_values(reference: str) -> dict[str, str]:
    """Return the values that choose an image which is named by a tag."""
    repository, _, tag = reference.rpartition(":")
    return {"image.repository": repository, "image.tag": tag}
