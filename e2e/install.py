"""Penstock on a cluster, as `make demo` and `make e2e` put it there: image loaded, chart installed, replicas up.

`install` is for who holds the cluster; `Installation` is the same release for a test inside the cluster's network.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e import helm
from e2e.cache import duration, say

if TYPE_CHECKING:
    from e2e.cluster import Cluster
    from e2e.images import Image

REPOSITORY = Path(__file__).resolve().parent.parent
RELEASE = "penstock"
NAMESPACE = "penstock-system"
OPERATOR = "penstock-operator"
WAIT_SECONDS = 120


def install(cluster: Cluster, image: Image, *, values: Mapping[str, Any] | None = None) -> None:
    """Load the Penstock image, install the chart with it, and wait until every operator replica runs.

    An installation that is there already is upgraded.

    Args:
        cluster: Where to.
        image: The image of operator and limiters.
        values: The chart's values by path, see `helm.value_arguments`.
    """
    cluster.load_image(image.archive)
    # Not by helm's --create-namespace: that one would lack the label that makes it refuse what is not restricted.
    cluster.kubectl("apply", "--server-side", "-f", str(REPOSITORY / "deploy" / "namespace.yaml"))
    say(f"helm upgrade --install {RELEASE} charts/penstock --namespace {NAMESPACE} (image {image.reference})")
    started = time.monotonic()
    try:
        _upgrade(cluster, {**helm.image_values(image.reference), **(values or {})})
    except subprocess.CalledProcessError:
        say(cluster.kubectl("-n", NAMESPACE, "get", "pods,events", "-o", "wide", check=False))
        raise
    ready = cluster.kubectl("-n", NAMESPACE, "get", "deployment", OPERATOR, "-o", "jsonpath={.status.readyReplicas}")
    say(f"Penstock is installed after {duration(time.monotonic() - started)}: {ready} operator replicas ready")


def _upgrade(cluster: Cluster, values: Mapping[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-helm-") as home:
        target = ("upgrade", "--install", RELEASE, helm.CHART, "--namespace", NAMESPACE)
        waiting = ("--wait", f"--timeout={WAIT_SECONDS}s")
        cluster.run(helm.command(*target, *waiting, *helm.value_arguments(values), home=Path(home)))


class Installation:
    """The release on the cluster that KUBECONFIG names.

    Attributes:
        values: The values it was found with.
    """

    def __init__(self) -> None:
        self._kubeconfig = Path(os.environ["KUBECONFIG"])
        self.values: dict[str, Any] = json.loads(self.run("get", "values", RELEASE, "--output", "json"))

    def run(self, *arguments: str | Path) -> str:
        """Run helm in the operator's namespace and return what it printed.

        Raises:
            HelmFailed: It refused.
        """
        return helm.run(*arguments, "--namespace", NAMESPACE, kubeconfig=self._kubeconfig)

    def install(self, chart: Path = helm.CHART, **values: Any) -> None:
        """Install or upgrade it with these values instead of those it was found with, and wait until it runs.

        Raises:
            HelmFailed: It refused, or it does not run in time.
        """
        given = helm.value_arguments({**self.values, **values})
        self.run("upgrade", "--install", RELEASE, chart, "--wait", f"--timeout={WAIT_SECONDS}s", *given)

    def uninstall(self) -> str:
        """Remove it if it is there, wait, and return what helm said; its pods take a few seconds more."""
        return self.run("uninstall", RELEASE, "--wait", "--ignore-not-found")

    def charts(self) -> list[str]:
        """Return the chart, with its version, of each revision of the release, the oldest first."""
        return [entry["chart"] for entry in json.loads(self.run("history", RELEASE, "--output", "json"))]
