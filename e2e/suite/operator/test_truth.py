"""Whatever keeps a backend from serving stands in `Ready`, and when it is gone the backend serves without a hand.

Each case puts one obstacle into a namespace of its own, applies a backend, waits for the cause in `Ready`'s message,
takes the obstacle away and waits for Ready. Several cases run at a time; the tests then look at what came of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import client

from e2e.audit import AuditLog
from e2e.suite.backends import wait_until
from e2e.suite.operator.obstacles import (
    ACCELERATOR,
    NAME,
    NODE_LABEL,
    POD_SECURITY,
    VOLUME,
    Kubectl,
    Scene,
    accelerators,
    claim,
    limit_range,
    nothing,
    occupy,
    quota,
    share,
    step,
    volume,
)

pytestmark = pytest.mark.cluster

CASES_AT_ONCE = 3
"""Each starts a pod or two, on a machine with few cores."""

TOLD_SECONDS = 10
RECOVERED_SECONDS = 15
LATE = 2
"""How often over its bar a time fails the test: the bars, which the record shows, are for a machine left alone."""

PATIENCE_SECONDS = 60
STATUS_WRITES = 12
"""For one obstacle from the first sight to Ready: more of them would be flapping."""

OPERATOR = "system:serviceaccount:penstock-system:penstock-operator"
RETRIES_RARE_SECONDS = 25.0
"""After this the ReplicaSet's controller waits longer between two tries than a recovery may take."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One obstacle.

    Attributes:
        spec: Fields of the backend that meets it.
        words: What must stand in `Ready`'s message.
        block: Puts the obstacle there.
        free: Takes it away.
        cure: Fields of the backend that no longer meets it; None when its spec stays as it is.
        percent: Share of a node's memory that the engine asks for, where that is the point.
        held_seconds: How long the obstacle stays when it has been told.
    """

    spec: Mapping[str, Any] = field(default_factory=dict)
    words: str
    block: Callable[[Scene], None] = nothing
    free: Callable[[Scene], None] = nothing
    cure: Mapping[str, Any] | None = None
    percent: int | None = None
    held_seconds: float = 0.0


LIMITED = {"resources": {"limits": {"memory": "512Mi"}}}
CASES: dict[str, Case] = {
    "no node has the label": Case(
        spec={"pod": {"nodeSelector": {NODE_LABEL: "here"}}},
        words="node affinity/selector",
        free=step("label", "node", "NODE", f"{NODE_LABEL}=here"),
    ),
    "no node has the memory": Case(
        percent=50,
        words="Insufficient memory",
        block=occupy,
        free=step("delete", "pods", "-l", "!serving.penstock.dev/backend"),
    ),
    "no node has the accelerator": Case(
        spec={"resources": {"limits": {ACCELERATOR: "1"}}},
        words=f"no node has a free {ACCELERATOR}",
        free=accelerators({"op": "add", "value": "1"}),
    ),
    "quota on pods": Case(
        words="exceeded quota: q", block=quota("pods", 0), free=quota("pods", 5), held_seconds=RETRIES_RARE_SECONDS
    ),
    "quota on Deployments": Case(
        words="exceeded quota: q", block=quota("count/deployments.apps", 0), free=quota("count/deployments.apps", 5)
    ),
    "quota on Services": Case(words="exceeded quota: q", block=quota("services", 0), free=quota("services", 5)),
    "LimitRange": Case(
        spec=LIMITED,
        words="maximum memory usage per Container is 300Mi, but limit is 512Mi",
        block=limit_range,
        free=step("delete", "limitrange", "small"),
    ),
    "Pod Security": Case(
        spec={"pod": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}},
        words="violates PodSecurity",
        block=step("label", "namespace", "NAMESPACE", f"{POD_SECURITY}=baseline"),
        free=step("label", "namespace", "NAMESPACE", f"{POD_SECURITY}-"),
    ),
    "missing claim": Case(
        spec={"pod": {"volumes": [{"name": "later", "persistentVolumeClaim": {"claimName": "later"}}]}},
        words="PersistentVolumeClaim later does not exist",
        block=volume,
        free=claim,
    ),
    "missing Secret of a volume": Case(
        spec={
            "pod": {
                "volumes": [{"name": "later", "secret": {"secretName": "later"}}],
                # Kubelet waits only for volumes that a container mounts.
                "volumeMounts": [{"name": "later", "mountPath": "/later"}],
            }
        },
        words='secret "later" not found',
        free=step("create", "secret", "generic", "later", "--from-literal=a=b"),
    ),
    "image that cannot be pulled": Case(
        spec={"engine": {"image": "registry.invalid/none:1"}},
        words="image registry.invalid/none:1 of the engine cannot be pulled",
        cure={},
    ),
    "crash loop": Case(
        spec={"model": {"source": {"baked": {"path": "/no/model"}}}},
        words="/no/model/tokenizer.json does not exist",
        cure={},
    ),
    "bad argument": Case(
        spec={"engine": {"args": ["--no-such-flag"]}}, words="unrecognized arguments: --no-such-flag", cure={}
    ),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one case, in seconds from the cause to the message, and from its end to Ready."""

    namespace: str
    told_seconds: float
    recovered_seconds: float


def play(case: Case, scene: Scene) -> Outcome:
    """Live through one case; fails when a step does not come in `PATIENCE_SECONDS`."""

    def told() -> bool:
        ready = scene.ready()
        return ready.get("status") == "False" and case.words in ready["message"]

    spec = case.spec if case.percent is None else {"resources": share(scene, scene.nodes[0], percent=case.percent)}
    case.block(scene)
    scene.apply(spec)
    told_seconds = wait_until(told, timeout=PATIENCE_SECONDS, what=lambda: f"{case.words!r} in {scene.ready()}")
    time.sleep(case.held_seconds)
    case.free(scene)
    if case.cure is not None:
        scene.apply(case.cure)
    recovered_seconds = wait_until(
        lambda: scene.ready().get("status") == "True",
        timeout=PATIENCE_SECONDS,
        what=lambda: f"Ready in {scene.ready()}",
    )
    scene.run("delete", "llmb", NAME)
    return Outcome(namespace=scene.namespace, told_seconds=told_seconds, recovered_seconds=recovered_seconds)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    api: client.ApiClient,
    kubectl: Kubectl,
    nodes: tuple[str, ...],
    new_namespace: Callable[..., str],
    engine_images: dict[str, str],
) -> Iterator[dict[str, Future[Outcome]]]:
    """Begin the cases that are asked for, some at a time, and at last take off the nodes what was put there."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    names = [call.params["name"] for call in calls if call is not None]
    scenes = {
        name: Scene(
            api, kubectl, new_namespace("truth-" + name.lower().replace(" ", "-")), engine_images["VLLM"], nodes
        )
        for name in names
    }
    with ThreadPoolExecutor(CASES_AT_ONCE) as pool:
        yield {name: pool.submit(play, CASES[name], scenes[name]) for name in names}
        pool.shutdown(cancel_futures=True)
    scene = scenes[names[0]]
    scene.run("label", "node", nodes[0], f"{NODE_LABEL}-")
    scene.run("delete", "persistentvolume", VOLUME, "--ignore-not-found", "--wait=false")
    found: Any = client.CoreV1Api(api).read_node(nodes[0])
    if ACCELERATOR in found.status.capacity:
        accelerators({"op": "remove"})(scene)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_told_and_the_backend_recovers_by_itself(
    outcomes: dict[str, Future[Outcome]], record: Callable[..., None], audit_log: AuditLog, name: str
) -> None:
    """The cause stands in `Ready` soon, Ready follows soon after its end, and status does not flap in between."""
    outcome = outcomes[name].result()
    writes = [
        call
        for call in audit_log.writes(user=OPERATOR)
        if (call.resource, call.namespace) == ("llmbackends/status", outcome.namespace)
    ]
    broken = []
    for what, value, bar, unit, most in (
        ("cause told", outcome.told_seconds, TOLD_SECONDS, "s", LATE * TOLD_SECONDS),
        ("recovered", outcome.recovered_seconds, RECOVERED_SECONDS, "s", LATE * RECOVERED_SECONDS),
        ("status writes", len(writes), STATUS_WRITES, "", STATUS_WRITES),
    ):
        promise = f"≤ {bar} {unit}".strip()
        record(f"truth: {name}: {what}", round(value, 1), unit=unit, bar=promise, holds=value <= bar)
        broken += [f"{what}: {value:.1f} {unit}"] if value > most else []
    assert broken == []
