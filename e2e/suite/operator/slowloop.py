"""What a test sees of the operator's slow loop, and what it does to it: figures by round, engines that seem loaded.

Time is counted in rounds, as the operator's own counter tells them, so a slow machine makes a test late and not red.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client
from prometheus_client.parser import text_string_to_metric_families

from e2e.install import NAMESPACE as OPERATOR_NAMESPACE
from e2e.install import OPERATOR
from e2e.prometheus.scrape import targets
from e2e.prometheus.server import PrometheusServer
from e2e.suite.asking import prompt
from e2e.suite.backends import NAMESPACE, Backend, conditions, wait_until
from e2e.suite.background import InBackground
from e2e.suite.scrape import limiter_total

METRICS_PORT = 8081
ENGINE_PORT = 8001
ROUND_TIMEOUT_SECONDS = 120.0
"""For what takes some rounds; it only ends a test that will never be green."""

STEADY = 1.02
STEADY_ROUNDS = 4
"""A rate that has risen by less in so many rounds does not rise."""

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


class Caller(InBackground):
    """Asks for short answers, one after the other; that some are refused is what limits are for."""

    def __init__(self, backend: Backend, *, pause_seconds: float) -> None:
        super().__init__(pause_seconds=pause_seconds)
        self._backend = backend
        self.answered = 0

    def step(self) -> None:
        connection = http.client.HTTPConnection(self._backend.url.removeprefix("http://"), timeout=30)
        body = json.dumps({"model": self._backend.model, "prompt": prompt(), "max_tokens": 2})
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            self.answered += connection.getresponse().status == 200


class Discovery(InBackground):
    """Tells Prometheus again and again which pods there are, as Kubernetes' own discovery would."""

    def __init__(self, server: PrometheusServer, api: client.ApiClient) -> None:
        super().__init__(pause_seconds=0.5)
        self._server = server
        self._core = client.CoreV1Api(api)

    def step(self) -> None:
        with contextlib.suppress(client.ApiException):  # asked again at once
            found: Any = self._core.list_namespaced_pod(NAMESPACE)
            self._server.show_targets(targets(found.items))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the operator's metrics say of a backend after a round.

    Attributes:
        rounds: Rounds so far.
        rules: Rounds by the rule that decided.
        rate: `penstock_backend_admission_rate_per_second`.
        binds: Whether limiters are held to it.
        signal: Name of the signal behind the pressure; empty for none.
        pressure: The pressure; 0 for none.
        source: Where signals come from.
    """

    rounds: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    rate: float = 0.0
    binds: bool = False
    signal: str = ""
    pressure: float = 0.0
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Fall:
    """How a signal lowered the rate.

    Attributes:
        before: Last reading before it fell.
        after: First reading after.
        rounds: Rounds from the first that saw the signal to the one that lowered the rate, both counted.
        late: Rounds from when Prometheus knew all replicas' values until the first that saw them.
    """

    before: Reading
    after: Reading
    rounds: int
    late: int

    @property
    def part(self) -> float:
        """What is left of the rate."""
        return self.after.rate / self.before.rate


class Scene:
    """One backend, the Prometheus that scrapes it, and the operator that looks at both."""

    def __init__(self, backend: Backend, prometheus: PrometheusServer, kubectl: Kubectl) -> None:
        self.backend, self.prometheus, self._kubectl = backend, prometheus, kubectl

    @property
    def version(self) -> str:
        """The engine's version."""
        return str(self.backend.spec["engine"]["version"])

    @property
    def freshness(self) -> tuple[str, str]:
        """Status and reason of `SignalsFresh`."""
        condition = conditions(self.backend.read()).get("SignalsFresh", {})
        return condition.get("status", ""), condition.get("reason", "")

    def read(self) -> Reading:
        """Return what the operator that leads says now."""
        pods: Any = client.CoreV1Api(self.backend.api).list_namespaced_pod(
            OPERATOR_NAMESPACE, label_selector=f"app.kubernetes.io/name={OPERATOR}"
        )
        for pod in pods.items:
            with contextlib.suppress(OSError):
                if (found := self._reading(_text(pod.status.pod_ip))) is not None:
                    return found
        return Reading()

    def _reading(self, text: str) -> Reading | None:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        rules = {one.labels["rule"]: int(one.value) for one in samples if one.name == "penstock_slow_loop_rounds_total"}
        own = {"namespace": NAMESPACE, "backend": self.backend.name}
        mine = [one for one in samples if own.items() <= one.labels.items()]
        values = {one.name: one.value for one in mine}
        if "penstock_backend_admission_rate_binds" not in values:
            return None
        signals = [one.labels["signal"] for one in mine if one.name == "penstock_pressure"]
        sources = [one.labels["source"] for one in mine if one.name == "penstock_signal_source" and one.value]
        return Reading(
            rounds=sum(rules.values()),
            rules=rules,
            rate=values.get("penstock_backend_admission_rate_per_second", 0.0),
            binds=bool(values["penstock_backend_admission_rate_binds"]),
            signal="".join(signals),
            pressure=values.get("penstock_pressure", 0.0),
            source="".join(sources),
        )

    def admitted(self) -> float:
        """Return the requests that all replicas have let in so far."""
        return sum(limiter_total(pod, "penstock_admitted_total") for pod in self.backend.pods())

    def until(self, holds: Callable[[Reading], bool], *, what: str, rounds: int) -> Reading:
        """Return the first reading for which it holds; fails when so many rounds have gone before."""
        first = found = self.read()

        def done() -> bool:
            nonlocal found
            found = self.read()
            if found.rounds > first.rounds + rounds:
                raise AssertionError(f"after {rounds} rounds still waiting for {what}: {found}")
            return holds(found)

        wait_until(done, timeout=ROUND_TIMEOUT_SECONDS, what=lambda: f"{what}: {found}")
        return found

    def settle(self) -> None:
        """Wait until the rate has stopped rising: while callers are still getting under way it goes up with them."""
        base = self.read()

        def settled() -> bool:
            nonlocal base
            now = self.read()
            if now.binds or now.rate > STEADY * base.rate:
                base = now
            return now.rounds >= base.rounds + STEADY_ROUNDS

        wait_until(settled, timeout=60, what=lambda: f"the rate to stop rising: {base}")

    def show(self, **load: float) -> None:
        """Let the engines of all replicas seem loaded: `waiting` requests, `kv_cache` from 0 to 1; nothing ends it."""
        method, body = ("POST", json.dumps({"kind": "load", **load})) if load else ("DELETE", "")
        program = (
            "import sys, urllib.request as r; "
            f"r.urlopen(r.Request('http://127.0.0.1:{ENGINE_PORT}/fault', sys.argv[1].encode(), method='{method}'))"
        )
        with ThreadPoolExecutor() as pool:
            for done in [
                pool.submit(
                    self._kubectl, "exec", pod.metadata.name, "-c", "engine", "--", "python3", "-c", program, body
                )
                for pod in self.backend.pods()
            ]:
                done.result()

    def lowers(self, metric: str, value: float, *, signal: str, **load: float) -> Fall:
        """Let the engines seem loaded, and return how that lowers the rate.

        Args:
            metric: What Prometheus must know of every replica before rounds count.
            value: Its value.
            signal: Name of the signal that the operator is to see.
            load: See `show`.
        """
        before = self.read()
        self.show(**load)
        self.wait_for_series(metric, value)
        return self.fall(signal, before=before)

    def wait_for_series(self, metric: str, value: float) -> None:
        """Wait until Prometheus knows this value of every replica."""
        names = {pod.metadata.name for pod in self.backend.pods()}

        def known() -> bool:
            found = {
                labels["pod"]: now for labels, now in self.prometheus.query(f'{metric}{{namespace="{NAMESPACE}"}}')
            }
            return all(found.get(name) == value for name in names)

        wait_until(known, timeout=60, what=lambda: f"{metric} = {value} of {names}: {self.prometheus.query(metric)}")

    def fall(self, signal: str, *, before: Reading | None = None) -> Fall:
        """Return how a signal lowers the rate whose series are there, or whose target has just changed.

        Args:
            signal: Name of the signal that the operator is to see.
            before: A reading from before: limiters may have told the operator sooner than Prometheus.
        """
        known = self.read()
        last = before or known
        seen: Reading | None = None

        def overloaded(now: Reading) -> bool:
            nonlocal last, seen
            if seen is None and now.signal == signal and now.pressure > 1:
                seen = now
            if now.binds:
                return True
            last = now
            return False

        after = self.until(overloaded, what=f"a lower rate because of {signal}", rounds=8)
        assert seen is not None
        return Fall(
            before=last, after=after, rounds=after.rounds - seen.rounds + 1, late=max(0, seen.rounds - known.rounds)
        )


def _text(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}:{METRICS_PORT}/metrics", timeout=5) as answer:
        return str(answer.read().decode())
