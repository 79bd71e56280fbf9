"""What the suite stands on: an API client, one backend per engine, and a way to keep figures.

The suite runs inside the cluster's network (see `e2e/__main__.py`): Service names and pod addresses work as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from bench.results import Row
from e2e.suite.backends import Backend

Record = Callable[..., None]


@pytest.fixture(scope="session")
def kubectl() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run kubectl and return the finished process, failed or not: what it says is part of what is tested."""
    program = os.environ["PENSTOCK_E2E_KUBECTL"]

    def run(*arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, check=False)
        if check and done.returncode:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done

    return run


@pytest.fixture(scope="session")
def api() -> client.ApiClient:
    """Return a client with the cluster's administrator credentials."""
    config.load_kube_config(os.environ["KUBECONFIG"])  # type: ignore[no-untyped-call]
    return client.ApiClient()


@pytest.fixture(scope="session")
def record() -> Record:
    """Keep one figure; without `bar` and `holds` it is information."""
    path = Path(os.environ["PENSTOCK_E2E_ROWS"])

    def keep(name: str, value: float, *, unit: str = "", bar: str | None = None, holds: bool | None = None) -> None:
        row = Row(name=name, value=value, unit=unit, bar=bar, holds=holds)
        with path.open("a") as file:
            file.write(json.dumps(row.__dict__) + "\n")

    return keep


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes `backend` once per engine image that was prepared."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize(
            "backend", list(json.loads(os.environ["PENSTOCK_E2E_IMAGES"])), indirect=True, scope="module"
        )


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest, api: client.ApiClient) -> Iterator[Backend]:
    """One backend with two replicas, shared by the tests of a module in their order, removed after the last."""
    engine = request.param
    one = Backend.for_engine(engine, image=json.loads(os.environ["PENSTOCK_E2E_IMAGES"])[engine], api=api)
    yield one
    one.delete()
