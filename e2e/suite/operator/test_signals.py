"""Limits follow the engine: what a real Prometheus says of it lowers the rate within two rounds, and it comes back.

One backend under a modest load, its engines told what to show. Rounds are shortened by the operator's own setting.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from e2e.install import Installation
from e2e.prometheus.scrape import scrape_configs
from e2e.prometheus.server import PrometheusServer
from e2e.suite.backends import NAMESPACE, Backend, limiter_state, wait_until
from e2e.suite.operator.slowloop import Caller, Discovery, Fall, Kubectl, Reading, Scene
from penstock.admission.pace import BURST_SECONDS
from penstock.api.backend import LLMBackend
from penstock.resources import podmonitor
from penstock.resources.facts import ClusterFacts

pytestmark = pytest.mark.cluster

Record = Callable[..., None]

INTERVAL_SECONDS = 1.5
SCRAPE_SECONDS = 1.0
CALLERS = 4
PAUSE_SECONDS = 0.4
NEW, OLD = "0.32.0", "0.8.5"
"""Versions of the engine: the one that Penstock pins, and the last that knows only the old name of the KV gauge."""

GAUGES = {NEW: "vllm:kv_cache_usage_perc", OLD: "vllm:gpu_cache_usage_perc"}
"""How full the KV cache is, by version."""

FALL = 0.9
"""What may be left of the rate at most."""

ROUNDS = 2
RETURN_ROUNDS = 40
"""A return takes 8 rounds for each cut of 30 %."""

QUIET_ROUNDS = 5
"""How long Prometheus is away."""

SLACK = 1.1
PUSH_SECONDS = 2.0
PATIENCE_SECONDS = 15.0
"""Far below the minute that kubelet takes to bring a changed ConfigMap."""

WAITING = "vllm:num_requests_waiting"

of_the_pinned_version = pytest.mark.parametrize("scene", [NEW], indirect=True, scope="module")


@pytest.fixture(scope="module")
def prometheus(api: client.ApiClient, nodes: tuple[str, ...], tmp_path_factory: Any) -> Iterator[PrometheusServer]:
    """Return a Prometheus in the network of the first node, not started yet."""
    node: Any = client.CoreV1Api(api).read_node(nodes[0])
    address = next(one.address for one in node.status.addresses if one.type == "InternalIP")
    server = PrometheusServer(
        Path(os.environ["PENSTOCK_E2E_PROMETHEUS"]), address=address, folder=tmp_path_factory.mktemp("prometheus")
    )
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def installation(prometheus: PrometheusServer) -> Iterator[Installation]:
    """The suite's installation, with short rounds and the address of Prometheus."""
    found = Installation()
    values: dict[str, Any] = {
        "settings.prometheusUrl": prometheus.url,
        "settings.slowLoopIntervalSeconds": INTERVAL_SECONDS,
    }
    found.install(**values)
    yield found
    found.install()


@pytest.fixture(scope="module")
def scene(
    request: pytest.FixtureRequest,
    installation: Installation,  # noqa: ARG001 - the operator knows of Prometheus before there is a backend
    engine_images: dict[str, str],
    prometheus: PrometheusServer,
    api: client.ApiClient,
    kubectl: Kubectl,
) -> Iterator[Scene]:
    """A backend with engines of one version, scraped and under load; its rate is known and holds nothing."""
    backend = Backend.for_engine("VLLM", image=engine_images["VLLM"], api=api)
    backend.name = f"signals-{request.param.replace('.', '-')}"
    backend.spec["drain"] = {"lameDuckSeconds": 1, "timeoutSeconds": 10}
    backend.spec["engine"]["version"] = request.param
    backend.spec["engine"]["env"].append({"name": "FAKEVLLM_VERSION", "value": request.param})
    one = Scene(backend, prometheus, kubectl)
    callers = [Caller(backend, pause_seconds=PAUSE_SECONDS) for _ in range(CALLERS)]
    with contextlib.ExitStack() as stack:
        stack.callback(gone, backend)
        backend.apply()
        monitor = podmonitor.build(LLMBackend.model_validate(backend.read()), ClusterFacts(pod_monitors=True))
        assert monitor is not None
        prometheus.configure(scrape_configs(monitor, prometheus.targets_file), interval_seconds=SCRAPE_SECONDS)
        stack.enter_context(Discovery(prometheus, api))
        prometheus.start()
        stack.callback(prometheus.stop)
        backend.wait_ready()
        for caller in callers:
            stack.enter_context(caller)
        one.wait_for_series(WAITING, 0)
        one.until(unbound, what="a rate, from Prometheus", rounds=RETURN_ROUNDS)
        yield one
    assert sum(caller.answered for caller in callers) > 0


def gone(backend: Backend) -> None:
    backend.delete()
    wait_until(lambda: not backend.pods(running=False), timeout=60, what=lambda: "the pods to go")


@pytest.fixture
def calm(scene: Scene) -> Iterator[Scene]:
    """The backend while nothing holds its rate."""
    scene.show()
    scene.until(unbound, what="nothing to hold the rate", rounds=RETURN_ROUNDS)
    scene.settle()
    yield scene
    if scene.backend.spec.pop("admission", None) is not None:
        scene.backend.apply()


def unbound(reading: Reading) -> bool:
    return not reading.binds and reading.rate > 1 and reading.source == "Prometheus"


def judge(fall: Fall, what: str, record: Record) -> None:
    """Keep and check how the rate fell."""
    before, after = fall.before.rate, fall.after.rate
    record(f"signals: {what}: rate before", round(before, 2), unit="/s")
    record(f"signals: {what}: rate after", round(after, 2), unit="/s")
    lower = 100 * (1 - fall.part)
    record(f"signals: {what}: the rate falls by", round(lower, 1), unit="%", bar="≥ 10 %", holds=fall.part <= FALL)
    in_time = fall.rounds <= ROUNDS
    record(f"signals: {what}: rounds to that", fall.rounds, bar=f"≤ {ROUNDS}", holds=in_time)
    assert fall.part <= FALL
    assert in_time
    assert fall.late <= ROUNDS, "the operator asked, and was not told what Prometheus knew"


def returns(scene: Scene, fall: Fall, what: str, record: Record) -> None:
    """Wait until the rate is what it was before it fell."""
    began = scene.read().rounds
    back = scene.until(
        lambda now: not now.binds and now.rate >= FALL * fall.before.rate,
        what="the rate of before",
        rounds=RETURN_ROUNDS,
    )
    record(f"signals: {what}: rate at last", round(back.rate, 2), unit="/s")
    record(f"signals: {what}: rounds to the rate of before", back.rounds - began, unit="")


@of_the_pinned_version
def test_what_the_pod_monitor_scrapes_is_told_apart(calm: Scene) -> None:
    """Each pod is read at two paths; what both of them have must not be mixed up in one series."""
    pods = {pod.metadata.name for pod in calm.backend.pods()}
    for metric in ("up", "scrape_samples_scraped"):
        found = calm.prometheus.query(f'{metric}{{namespace="{NAMESPACE}"}}')
        paths = {(labels["pod"], labels.get("metrics_path")) for labels, _ in found}
        assert paths == {(pod, path) for pod in pods for path in podmonitor.PATHS}, metric


@of_the_pinned_version
def test_an_edited_policy_is_in_force_at_once(calm: Scene, record: Record) -> None:
    """By push; kubelet brings the file within about a minute."""
    pods = calm.backend.pods()
    calm.backend.spec["admission"] = {"concurrency": {"maximum": 3}}
    started = time.monotonic()
    calm.backend.apply()
    wait_until(
        lambda: [limiter_state(pod)["limit"]["value"] for pod in pods] == [3] * len(pods),
        timeout=PATIENCE_SECONDS,
        what=lambda: f"a limit of 3: {[limiter_state(pod) for pod in pods]}",
    )
    seconds = time.monotonic() - started
    in_time = seconds <= PUSH_SECONDS
    record("signals: edited policy to limit in force", round(seconds, 2), unit="s", bar="≤ 2 s", holds=in_time)
    assert {limiter_state(pod)["policy"]["source"] for pod in pods} == {"push"}


@of_the_pinned_version
def test_a_changed_ready_set_changes_the_share(calm: Scene, api: client.ApiClient, record: Record) -> None:
    """A replica that ends leaves its share to the one that stays, and gets it back when it is there again."""
    leaves, stays = calm.backend.pods()

    def shares(share: float, peers: int) -> bool:
        pushed = limiter_state(stays)["pushed"]
        return (pushed["share"], pushed["peers"]) == (share, peers)

    assert shares(0.5, 1)
    started = time.monotonic()
    client.CoreV1Api(api).delete_namespaced_pod(leaves.metadata.name, NAMESPACE)
    wait_until(
        lambda: shares(1.0, 0), timeout=PATIENCE_SECONDS, what=lambda: f"the whole share: {limiter_state(stays)}"
    )
    seconds = time.monotonic() - started
    in_time = seconds <= PUSH_SECONDS
    record("signals: a replica ends: to the other's share", round(seconds, 2), unit="s", bar="≤ 2 s", holds=in_time)
    wait_until(lambda: shares(0.5, 1), timeout=60, what=lambda: f"the half again: {limiter_state(stays)}")


@of_the_pinned_version
def test_waiting_requests_lower_the_rate_and_a_target_moves_the_point(calm: Scene, record: Record) -> None:
    """0 to 10 lowers it; at a target of 20 the same 10 let it return; at the target of before they lower it again."""
    fall = calm.lowers(WAITING, 10, signal="waiting", waiting=10)
    judge(fall, "waiting 0 to 10", record)
    calm.backend.spec["admission"] = {"adaptive": {"targets": {"waitingRequests": 20}}}
    calm.backend.apply()
    returns(calm, fall, "waiting 10, target raised from 2 to 20", record)
    del calm.backend.spec["admission"]
    calm.backend.apply()
    fall = calm.fall("waiting")
    judge(fall, "waiting 10, target lowered from 20 to 2", record)
    calm.show()
    returns(calm, fall, "waiting 10 to 0", record)


@pytest.mark.parametrize("scene", GAUGES, indirect=True, scope="module")
def test_a_full_kv_cache_lowers_the_rate(calm: Scene, record: Record) -> None:
    """Whichever of its two names the engine gives the gauge."""
    gauge, other = (GAUGES[version] for version in sorted(GAUGES, key=lambda one: one != calm.version))
    fall = calm.lowers(gauge, 0.95, signal="kvCachePercent", kv_cache=0.95)
    assert not [labels for labels, _ in calm.prometheus.query(other) if labels["pod"].startswith(calm.backend.name)]
    judge(fall, f"{gauge} 95 %", record)
    calm.show()
    returns(calm, fall, f"{gauge} back", record)


@pytest.fixture
def held(scene: Scene) -> Scene:
    """The backend while its rate is held where a cut has put it: loaded, and not too much."""
    if not scene.read().binds:
        scene.lowers(GAUGES[NEW], 0.95, signal="kvCachePercent", kv_cache=0.95)
    scene.show(kv_cache=0.75)
    scene.wait_for_series(GAUGES[NEW], 0.75)
    scene.until(lambda now: now.binds and now.pressure < 1, what="the rate to be held", rounds=8)
    return scene


@of_the_pinned_version
@pytest.mark.parametrize("trouble", ["stopped", "hanging"])
def test_without_prometheus_limits_hold_and_status_says_so(held: Scene, record: Record, trouble: str) -> None:
    prometheus, before = held.prometheus, held.read()
    assert held.freshness == ("True", "SignalsRead")
    troubles: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "stopped": (prometheus.stop, prometheus.start),
        "hanging": (prometheus.freeze, prometheus.thaw),
    }
    end, begin = troubles[trouble]
    end()
    try:
        told = wait_until(
            lambda: held.freshness == ("True", "DirectFallback"),
            timeout=60,
            what=lambda: f"DirectFallback: {held.freshness}",
        )
        first, started, admitted = held.read(), time.monotonic(), held.admitted()
        assert first.source == "Direct"
        last = held.until(
            lambda now: now.rounds >= first.rounds + QUIET_ROUNDS, what="some rounds", rounds=2 * QUIET_ROUNDS
        )
        pushed = [limiter_state(pod)["pushed"] for pod in held.backend.pods()]
        rate = sum(one["ratePerSecond"] for one in pushed)
        admitted, seconds = held.admitted() - admitted, time.monotonic() - started
    finally:
        begin()
    back = wait_until(
        lambda: held.freshness == ("True", "SignalsRead") and held.read().source == "Prometheus",
        timeout=60,
        what=lambda: f"SignalsRead: {held.freshness}",
    )
    record(f"signals: Prometheus {trouble}: rate before", round(before.rate, 2), unit="/s")
    record(f"signals: Prometheus {trouble}: rate at the limiters meanwhile", round(rate, 2), unit="/s")
    record(f"signals: Prometheus {trouble}: admitted meanwhile", round(admitted / seconds, 2), unit="/s")
    record(f"signals: Prometheus {trouble}: to DirectFallback", round(told, 1), unit="s")
    record(f"signals: Prometheus {trouble}: from its return to SignalsRead", round(back, 1), unit="s")
    assert (last.rate, last.binds) == (before.rate, True)
    assert 0 < admitted <= SLACK * before.rate * (seconds + BURST_SECONDS)
    assert [one["standing"] for one in pushed] == ["fresh"] * len(pushed)
    assert rate == pytest.approx(before.rate, rel=1e-3)
