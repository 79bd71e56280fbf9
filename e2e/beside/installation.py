"""Penstock's CRD and rights on a control plane: `deploy/install.yaml` without what runs as pods there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.beside.administrator import Administrator
from e2e.beside.waiting import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
NAMESPACE = "penstock-system"
OPERATOR_USER = f"system:serviceaccount:{NAMESPACE}:penstock-operator"
OPERATOR_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
NOT_INSTALLED = frozenset({"Deployment", "PodDisruptionBudget", "Service"})
"""What of the installation only makes sense where the operator runs as a pod."""


def install(administrator: Administrator) -> None:
    """Apply the rest, and wait until the CRD is served."""
    for obj in yaml.safe_load_all((REPOSITORY / "deploy" / "install.yaml").read_text()):
        if obj["kind"] not in NOT_INSTALLED:
            administrator.apply(obj)

    def established() -> bool:
        crd: Mapping[str, Any] = (
            administrator.get("CustomResourceDefinition", "", "llmbackends.serving.penstock.dev") or {}
        )
        conditions = crd.get("status", {}).get("conditions", [])
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    wait_for(established, "established CRD")
