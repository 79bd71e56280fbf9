"""The chart on a real cluster with the real helm: as shipped, refused, upgraded, uninstalled, installed again.

The suite's own installation is used and put back at the end. A backend serves all the while: its pods must outlive
everything that happens to the operator, and no request may fail.
"""

from __future__ import annotations

import http.client
import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from e2e import helm
from e2e.install import NAMESPACE, OPERATOR, RELEASE, WAIT_SECONDS, Installation
from e2e.suite.backends import Backend, wait_until
from e2e.suite.background import InBackground

CRD = "llmbackends.serving.penstock.dev"
OLD_TEXT, NEW_TEXT = "shortNames:\n    - llmb\n", "shortNames:\n    - llmb\n    - older\n"
ASK_SECONDS = 0.05


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    found = Installation()
    yield found
    found.install()


class Asking(InBackground):
    """Asks a backend again and again, each time on a new connection, and keeps what goes wrong."""

    def __init__(self, url: str) -> None:
        super().__init__(pause_seconds=ASK_SECONDS)
        self._url = url
        self.answered = 0
        self.failures: list[str] = []

    def step(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=10) as answer:  # noqa: S310 - the suite's own Service
                answer.read()
            self.answered += 1
        except (OSError, http.client.HTTPException) as error:
            self.failures.append(str(error))


@pytest.fixture(scope="module")
def serving(api: client.ApiClient, engine_images: dict[str, str]) -> Iterator[Backend]:
    """A backend with two ready replicas."""
    engine, image = next(iter(engine_images.items()))
    one = Backend.for_engine(engine, image=image, api=api)
    one.name = "chart"
    one.apply()
    one.wait_ready()
    yield one
    one.delete()
    wait_until(lambda: not one.pods(running=False), timeout=60, what=lambda: "the pods to go")


def uids(backend: Backend) -> set[str]:
    return {pod.metadata.uid for pod in backend.pods()}


def operator_pods(api: client.ApiClient) -> list[Any]:
    found: Any = client.CoreV1Api(api).list_namespaced_pod(
        NAMESPACE, label_selector=f"app.kubernetes.io/name={OPERATOR}"
    )
    return [pod for pod in found.items if not pod.metadata.deletion_timestamp]


def test_helm_lint_finds_nothing(installation: Installation) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in installation.run("lint", helm.CHART, "--strict")


def test_as_shipped_two_replicas_run_on_two_nodes(api: client.ApiClient) -> None:
    pods = operator_pods(api)
    assert len(pods) == 2
    assert len({pod.spec.node_name for pod in pods}) == 2
    budget: Any = client.PolicyV1Api(api).read_namespaced_pod_disruption_budget(OPERATOR, NAMESPACE)
    assert (budget.status.current_healthy, budget.status.disruptions_allowed) == (2, 1)


def test_helm_test_passes(installation: Installation) -> None:
    assert "Succeeded" in installation.run("test", RELEASE, f"--timeout={WAIT_SECONDS}s")


@pytest.mark.parametrize(
    ("role", "allowed"), [("edit", {"get", "patch", "delete"}), ("view", {"get"})], ids=["editors", "viewers"]
)
def test_users_of_a_namespace_may_use_its_backends(kubectl: Callable[..., Any], role: str, allowed: set[str]) -> None:
    """The cluster's own roles are aggregated: nobody has to be given rights on a new kind."""
    binding = ["--clusterrole", role, "--user", f"a-{role}"]
    kubectl("create", "rolebinding", f"chart-{role}", *binding)
    try:
        asked = ("auth", "can-i", "--as", f"a-{role}")
        verbs = {
            verb
            for verb in ("get", "patch", "delete")
            if kubectl(*asked, verb, "llmbackends", check=False).stdout.strip() == "yes"
        }
    finally:
        kubectl("delete", "rolebinding", f"chart-{role}")
    assert verbs == allowed


def test_wrong_values_are_refused_and_change_nothing(installation: Installation) -> None:
    before = installation.charts()
    with pytest.raises(helm.HelmFailed, match="at '/replicas': got string, want integer"):
        installation.install(replicas="two")
    assert installation.charts() == before


def earlier_chart(folder: Path) -> Path:
    """Return a copy of the chart as an earlier version, whose CRD differs."""
    shutil.copytree(helm.CHART, folder / "penstock")
    for name, old, new in (
        ("Chart.yaml", "\nversion: ", "\nversion: 0.0.1 # "),
        ("templates/crds/llmbackends.yaml", OLD_TEXT, NEW_TEXT),
    ):
        path = folder / "penstock" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    return folder / "penstock"


def test_an_upgrade_of_the_chart_brings_its_crd_and_touches_no_replica(
    installation: Installation,
    serving: Backend,
    kubectl: Callable[..., Any],
    record: Callable[..., None],
    tmp_path: Path,
) -> None:
    def short_names() -> list[str]:
        return list(json.loads(kubectl("get", "crd", CRD, "-o", "jsonpath={.spec.names.shortNames}").stdout))

    installation.install(earlier_chart(tmp_path))
    assert installation.charts()[-1] == "penstock-0.0.1"
    assert short_names() == ["llmb", "older"]
    before = uids(serving)
    with Asking(f"{serving.url}/v1/models") as asking:
        started = time.monotonic()
        installation.install(podAnnotations={"rolled": "yes"})
        record("chart upgraded, operator rolled", time.monotonic() - started, unit="s")
    assert short_names() == ["llmb"]
    assert installation.charts()[-1] != "penstock-0.0.1"
    assert asking.answered > 0
    record("requests failed while the operator was rolled", len(asking.failures), bar="0", holds=not asking.failures)
    assert asking.failures == []
    serving.wait_ready()
    assert uids(serving) == before


def test_an_uninstall_leaves_crd_backends_and_data_path_alone(
    installation: Installation, serving: Backend, kubectl: Callable[..., Any], record: Callable[..., None]
) -> None:
    """And the next installation takes everything over: no replica is replaced, since the drain key has stayed."""
    before = uids(serving)
    with Asking(f"{serving.url}/v1/models") as asking:
        said = installation.uninstall()
        assert CRD in said, "helm says what it keeps"
        of_release = ("-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name")
        for kinds in ("deploy,svc,pdb,sa,role,rolebinding", "clusterrole,clusterrolebinding"):
            assert kubectl("-n", NAMESPACE, "get", kinds, *of_release).stdout == ""
        kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", f"app.kubernetes.io/name={OPERATOR}")
        assert uids(serving) == before
        installation.install()
    record("requests failed without an operator", len(asking.failures), bar="0", holds=not asking.failures)
    assert asking.failures == []
    assert asking.answered > 0
    serving.spec["replicas"] = 3
    serving.apply()
    serving.wait_ready()
    assert before < uids(serving)
