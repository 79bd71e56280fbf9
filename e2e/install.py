"""Penstock on a cluster, as `make demo` and `make e2e` put it there: image loaded, manifest applied, rolled out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.cache import say

if TYPE_CHECKING:
    from e2e.cluster import Cluster
    from e2e.images import Image

REPOSITORY = Path(__file__).resolve().parent.parent
NAMESPACE = "penstock-system"
ROLLOUT_TIMEOUT_SECONDS = 120


def install(cluster: Cluster, image: Image) -> None:
    """Load the Penstock image, apply the install manifest rendered for it, and wait until the operator runs."""
    cluster.load_image(image.archive)
    manifest = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "generate.py"), "--image", image.reference],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    say(f"installing Penstock ({image.reference})")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=manifest)
    cluster.kubectl("wait", "--for=condition=Established", "crd/llmbackends.serving.penstock.dev", "--timeout=60s")
    cluster.kubectl(
        "-n", NAMESPACE, "rollout", "status", "deployment/penstock-operator", f"--timeout={ROLLOUT_TIMEOUT_SECONDS}s"
    )
