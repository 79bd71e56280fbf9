"""Each kube-apiserver takes the CRD, refuses what must be refused, and fills in the defaults that the model has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from e2e.versions import servers
from penstock.api.backend import LLMBackend
from penstock.api.crd import NAME, PRINTER_COLUMNS, crd
from penstock.reconcile.children import NO_VERSION
from tests.api.complete import VALID
from tests.api.examples import without_empty
from tests.api.invalid import REFUSED, STALLED, Invalid

BACKENDS = "/apis/serving.penstock.dev/v1alpha1/namespaces/default/llmbackends"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
ESTABLISHED_SECONDS = 60
DRY_RUN = {"dryRun": "All"}
APPLY = "application/apply-patch+yaml"

Server = Callable[..., requests.Response]


@pytest.fixture(scope="module", params=[servers.OLDEST, servers.NEWEST])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Yield a function that asks an API server with the CRD installed."""
    with servers.running(request.param) as plane, requests.Session() as session:
        session.trust_env = False
        session.cert = (str(plane.certificate.certificate), str(plane.certificate.key))
        session.verify = str(plane.authority.certificate)

        def ask(method: str, path: str, **options: Any) -> requests.Response:
            return session.request(method, plane.server + path, timeout=30, **options)

        assert ask("GET", "/version").json()["gitVersion"] == f"v{request.param}"
        answer = ask("POST", CRDS, json=crd())
        assert answer.ok, answer.text
        deadline = time.monotonic() + ESTABLISHED_SECONDS
        while ask("GET", BACKENDS).status_code != 200:
            assert time.monotonic() < deadline, "the CRD is not established"
            time.sleep(0.05)
        yield ask


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_it_is_refused_with_its_field_and_a_way_out(server: Server, case: Invalid) -> None:
    answer = server("POST", BACKENDS, json=case.body, params=DRY_RUN)
    assert answer.status_code == 422, answer.text
    causes = [(cause["field"], cause["message"]) for cause in answer.json()["details"]["causes"]]
    assert any(field == case.field and case.words in message for field, message in causes), causes


@pytest.mark.parametrize("case", STALLED, ids=lambda case: case.name)
def test_what_the_server_cannot_see_is_stored(server: Server, case: Invalid) -> None:
    answer = server("POST", BACKENDS, json=case.body, params=DRY_RUN)
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("body", VALID.values(), ids=list(VALID))
def test_it_is_stored_with_the_defaults_that_the_model_has(server: Server, body: dict[str, Any]) -> None:
    answer = server("POST", BACKENDS, json=body, params={**DRY_RUN, "fieldValidation": "Strict"})
    assert answer.status_code == 201, answer.text
    stored = LLMBackend.parse({**answer.json(), "status": {}}).spec
    assert without_empty(_as_text(answer.json()["spec"])) == without_empty(stored.to_dict())
    assert stored == LLMBackend.parse(body).spec


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_can_be_applied(server: Server, path: Path) -> None:
    for obj in yaml.safe_load_all(path.read_text()):
        collection = BACKENDS if obj["kind"] == "LLMBackend" else AUTOSCALERS
        answer = server(
            "PATCH",
            f"{collection}/{obj['metadata']['name']}",
            params={**DRY_RUN, "fieldManager": "kubectl", "fieldValidation": "Strict"},
            headers={"Content-Type": APPLY},
            data=yaml.safe_dump(obj),
        )
        assert answer.ok, answer.text


def test_it_is_listed_and_scaled(server: Server) -> None:
    body = next(iter(VALID.values()))
    path = f"{BACKENDS}/{body['metadata']['name']}"
    assert server("POST", BACKENDS, json=body).status_code == 201
    try:
        table = server("GET", BACKENDS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json()
        names = [column["name"] for column in table["columnDefinitions"]]
        assert names[1:] == [column["name"] for column in PRINTER_COLUMNS]
        scale = server("GET", f"{path}/scale").json()
        answer = server("PUT", f"{path}/scale", json={**scale, "spec": {"replicas": 3}})
        assert answer.ok, answer.text
        assert server("GET", path).json()["spec"]["replicas"] == 3
        changed = {"spec": {"engine": {"type": "VLLM"}}}
        refused = server("PATCH", path, json=changed, headers={"Content-Type": "application/merge-patch+json"})
        assert "the engine's type cannot be changed" in refused.json()["message"]
    finally:
        assert server("DELETE", path).ok


def test_the_crd_can_be_applied_again_without_a_change(server: Server) -> None:
    def apply() -> str:
        answer = server(
            "PATCH",
            f"{CRDS}/{NAME}",
            params={"fieldManager": "kubectl", "force": "true"},
            headers={"Content-Type": APPLY},
            data=yaml.safe_dump(crd()),
        )
        assert answer.ok, answer.text
        return str(answer.json()["metadata"]["resourceVersion"])

    assert apply() == apply()


@pytest.mark.parametrize(
    ("path", "version", "spec"),
    [
        ("/api/v1/namespaces/default/configmaps/fresh", "v1", {"data": {"a": "1"}}),
        ("/api/v1/namespaces/default/services/fresh", "v1", {"spec": {"ports": [{"port": 80, "protocol": "TCP"}]}}),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets/fresh", "policy/v1", {"spec": {"maxUnavailable": 1}}),
        ("/apis/apps/v1/namespaces/default/controllerrevisions/fresh", "apps/v1", {"revision": 1, "data": {"a": 1}}),
    ],
    ids=["ConfigMap", "Service", "PodDisruptionBudget", "ControllerRevision"],
)
def test_an_apply_with_a_version_that_nothing_has_only_ever_makes(
    server: Server, path: str, version: str, spec: dict[str, Any]
) -> None:
    """The reconciler's first apply of a child relies on it: a name that somebody has taken is left alone."""
    kinds = {"configmaps": "ConfigMap", "services": "Service", "poddisruptionbudgets": "PodDisruptionBudget"}
    kind = kinds.get(path.split("/")[-2], "ControllerRevision")
    meta = {"name": "fresh", "resourceVersion": NO_VERSION}

    def apply() -> int:
        body = yaml.safe_dump({"apiVersion": version, "kind": kind, "metadata": meta, **spec})
        query = {"fieldManager": "one", "force": "true"}
        return server("PATCH", path, params=query, headers={"Content-Type": APPLY}, data=body).status_code

    assert apply() == 201
    before = server("GET", path).json()
    assert apply() == 409
    assert server("GET", path).json() == before


def _as_text(value: Any) -> Any:
    """Write quantities as the model does: the API server keeps whole numbers as numbers."""
    if not isinstance(value, dict):
        return [_as_text(entry) for entry in value] if isinstance(value, list) else value
    return {
        name: {key: str(entry) for key, entry in inner.items()} if name in {"limits", "requests"} else _as_text(inner)
        for name, inner in value.items()
    }
