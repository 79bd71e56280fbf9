"""Signals from Prometheus, asked through prometheus-api-client in threads of its own.

One query per namespace and signal answers for all backends there, and those who ask at about the same time share it.
It selects the samples of the last 60 seconds, so a series that has ended is not in the answer, and each sample comes
with its own time. What is not a number, and what two series of one pod tell at the same time (scraped twice, or by two
clusters), is unknown.

The library blocks, so it never runs in the event loop. Whoever asks waits for a bounded time, which counts for all
queries of a namespace together; a query that is late ends by itself soon after, and until then its namespace is away at
once for all who ask. One that has not begun by then never does, so nothing piles up.
"""

from __future__ import annotations

import asyncio
import io
import math
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import urllib3
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from penstock.api.engine import EngineType
from penstock.engines.engine import for_type
from penstock.engines.facts import Aggregation, MetricName
from penstock.fleet.signals import Away, ReplicaSignals, Signal, Subject

OLDEST_SECONDS = 60
THREADS = 8
ANSWER_LIMIT_BYTES = 32 * 1024 * 1024
READ_BYTES = 64 * 1024
SHARED_SECONDS = 2.0
"""How long an answer counts for others who ask, at most."""

_UNREADABLE = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    PrometheusApiClientException,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RecursionError,
)
"""What the network, files and an answer of any shape can lead to."""

_Values = dict[str, dict[str, Signal]]
"""By pod, then by signal."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How Prometheus is reached.

    Attributes:
        url: Where its API is.
        headers: Sent with each query, such as a tenant's.
        bearer_token_file: File with a token, read again for each query; None for none.
        ca_file: What its certificate is judged by; None for the system's.
        timeout_seconds: For all signals of a namespace.
        shared_seconds: How long an answer counts for others; shorter than a round, else the next one gets it too.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_token_file: Path | None = None
    ca_file: Path | None = None
    timeout_seconds: float = 5.0
    shared_seconds: float = SHARED_SECONDS


@dataclass(frozen=True, slots=True)
class _Asked:
    task: asyncio.Future[_Values]
    at: float


class PrometheusSource:
    """See the module's docstring."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")
        self._local = threading.local()
        self._asked: dict[tuple[str, EngineType], _Asked] = {}

    async def read(self, subject: Subject) -> Mapping[str, ReplicaSignals]:
        """See `SignalSource`."""
        loop = asyncio.get_running_loop()
        key, now = (subject.namespace, subject.engine), loop.time()
        asked = self._asked.get(key)
        if asked is None or (asked.task.done() and now - asked.at > self._connection.shared_seconds):
            deadline = time.monotonic() + self._connection.timeout_seconds
            self._forget_old(now)
            task = loop.run_in_executor(self._threads, self._fetch, *key, deadline)
            asked = self._asked[key] = _Asked(task, now)
        patience = max(0.0, asked.at + self._connection.timeout_seconds - now)
        done, _ = await asyncio.wait((asked.task,), timeout=patience)
        if not done:
            asked.task.add_done_callback(_heard)
            raise Away(f"Prometheus has not answered within {self._connection.timeout_seconds:g} s")
        values = asked.task.result()
        names = {one.name for one in subject.replicas}
        since = now - asked.at  # an answer that is shared has aged
        return {
            pod: ReplicaSignals(
                waiting=_aged(found.get("waiting"), since),
                running=_aged(found.get("running"), since),
                kv_cache_percent=_aged(found.get("kv_cache_percent"), since),
            )
            for pod, found in values.items()
            if pod in names
        }

    def _forget_old(self, now: float) -> None:
        """Drop answers that count for nobody any more: their namespaces may be gone."""
        old = [
            key
            for key, asked in self._asked.items()
            if asked.task.done() and now - asked.at > self._connection.shared_seconds
        ]
        for key in old:
            del self._asked[key]

    def close(self) -> None:
        """Ask no more; what is under way ends by its time-out."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, namespace: str, engine: EngineType, deadline: float) -> _Values:
        """Ask for all signals of a namespace; runs in a thread."""
        metrics = for_type(engine).facts.metrics
        wanted = {"waiting": metrics.waiting, "running": metrics.running, "kv_cache_percent": metrics.kv_cache_used}
        found: _Values = {}
        for name, metric in wanted.items():
            if metric is None:
                continue
            for pod, signal in signals_in(self._query(namespace, metric, deadline), metric, now=time.time()).items():
                scaled = signal._replace(value=100 * signal.value) if name == "kv_cache_percent" else signal
                found.setdefault(pod, {})[name] = scaled
        return found

    def _query(self, namespace: str, metric: MetricName, deadline: float) -> object:
        names = "|".join(metric.names)
        query = f'{{__name__=~"{names}",namespace="{namespace}"}}[{OLDEST_SECONDS}s]'
        try:
            return self._client(deadline).custom_query(query)
        except _UNREADABLE as error:
            raise Away(f"Prometheus cannot be asked: {_brief(error)}") from None

    def _client(self, deadline: float) -> PrometheusConnect:
        connection = self._connection
        client: PrometheusConnect | None = getattr(self._local, "client", None)
        if client is None:
            session = self._local.session = _Session()
            session.trust_env = False  # what is configured counts, and no file of this machine
            session.verify = str(connection.ca_file) if connection.ca_file else True
            client = PrometheusConnect(
                url=connection.url.rstrip("/"),
                session=session,
                retry=Retry(total=0),
            )
            self._local.client = client
        headers = dict(connection.headers)
        if connection.bearer_token_file is not None:
            headers["Authorization"] = f"Bearer {connection.bearer_token_file.read_text().strip()}"
        client.headers = headers
        self._local.session.deadline = deadline
        return client


class _Session(requests.Session):
    """Sees to it that a whole answer has one deadline: a time-out of a socket begins anew with every byte.

    Attributes:
        deadline: By the monotonic clock.
    """

    deadline = 0.0

    def request(self, *arguments: Any, **named: Any) -> requests.Response:  # noqa: ANN401 - as it is there
        """Ask and read the whole answer."""
        # A redirect would take the headers along to wherever it leads.
        options = {"timeout": self._left(), "stream": True, "allow_redirects": False}
        response = super().request(*arguments, **named | options)
        try:
            content = bytearray()
            while piece := response.raw.read1(READ_BYTES, decode_content=True):
                content += piece
                if len(content) > ANSWER_LIMIT_BYTES:
                    raise ValueError("the answer is too large")
                self._left()
        finally:
            response.close()
        response.raw = io.BytesIO(content)
        return response

    def _left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise requests.Timeout("not answered in time")
        return left


def signals_in(result: object, metric: MetricName, *, now: float) -> dict[str, Signal]:
    """Return by pod what the result of a range selector tells; what cannot be understood is left out."""
    by_pod: dict[str, dict[str, dict[str, Signal | None]]] = {}
    for series in result if isinstance(result, list) else ():
        try:
            labels, (at, text) = series["metric"], series["values"][-1]
            pod, name, part = labels["pod"], labels["__name__"], labels.get("engine", "")
            signal = Signal(float(text), min(max(0.0, now - float(at)), OLDEST_SECONDS))
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        parts = by_pod.setdefault(pod, {}).setdefault(name, {})
        parts[part] = None if part in parts or not math.isfinite(signal.value) else signal
    found = {}
    for pod, names in by_pod.items():
        parts = next((names[name] for name in metric.names if name in names), {})
        known = [one for one in parts.values() if one is not None]
        if known and len(known) == len(parts):
            values = [one.value for one in known]
            value = sum(values) if metric.aggregation is Aggregation.SUM else max(values)
            found[pod] = Signal(value, max(one.age_seconds for one in known))
    return found


def _aged(signal: Signal | None, seconds: float) -> Signal | None:
    return None if signal is None else signal._replace(age_seconds=signal.age_seconds + seconds)


def _heard(task: asyncio.Future[_Values]) -> None:
    """Nobody waits for it any more, so nobody is told of its error."""
    if not task.cancelled():
        task.exception()


def _brief(error: Exception) -> str:
    """Return what happened, without anything that was sent or answered: it is told to many."""
    if isinstance(error, PrometheusApiClientException):
        return str(error).partition(" (")[0]  # the status
    return type(error).__name__
