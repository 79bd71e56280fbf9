"""What the operator's suite stands on besides the main suite's fixtures: namespaces of its own, and the audit log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client

from e2e.audit import AuditLog

NewNamespace = Callable[..., str]


@pytest.fixture(scope="session")
def audit_log() -> AuditLog:
    """Return the audit log of the cluster's API server, see `e2e.audit`."""
    return AuditLog(Path(os.environ["PENSTOCK_E2E_AUDIT"]))


@pytest.fixture(scope="session")
def engine_images() -> dict[str, str]:
    """Return the engine images that are on the nodes, by engine type."""
    return dict(json.loads(os.environ["PENSTOCK_E2E_IMAGES"]))


@pytest.fixture(scope="session")
def nodes() -> tuple[str, ...]:
    """Return the names of the nodes, the one with the control plane first."""
    return tuple(json.loads(os.environ["PENSTOCK_E2E_NODES"]))


@pytest.fixture(scope="module")
def new_namespace(api: client.ApiClient) -> Iterator[NewNamespace]:
    """Make namespaces that are removed, with all that is in them, when the module's tests are over."""
    core, made = client.CoreV1Api(api), []

    def make(name: str, *, labels: dict[str, str] | None = None) -> str:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name, labels=labels)))
        made.append(name)
        return name

    yield make
    for name in made:
        core.delete_namespace(name)
