"""What `/state` tells the operator's slow loop of this replica.

Values that are not known are left out: an engine whose metrics could not be read lately is not an idle one. The
engine's text is read only when somebody asks, since that is once per round and the text comes once per second.
"""

from __future__ import annotations

import math
from collections import deque

from prometheus_client.parser import text_string_to_metric_families

from penstock.admission.gate import Gate
from penstock.engines.facts import Aggregation, MetricName, MetricNames
from penstock.limiter.engine import Poller
from penstock.limiter.firsttoken import FirstTokens

RATE_SECONDS = 10.0
"""The admitted rate is that of at least so long a time, and so long a queue that was too long counts."""

SAMPLE_SECONDS = 1.0


class AdmittedRate:
    """Requests admitted per second, from a counter that is looked at now and then."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def look(self, admitted: int, now: float) -> None:
        """Take note of the counter."""
        samples = self._samples
        if samples and now - samples[-1][0] < SAMPLE_SECONDS:
            return
        samples.append((now, admitted))
        while len(samples) > 2 and now - samples[1][0] >= RATE_SECONDS:
            samples.popleft()

    def per_second(self, admitted: int, now: float) -> float | None:
        """Return the rate until now; None before there is a second to look back on."""
        if not self._samples:
            return None
        then, before = self._samples[0]
        return (admitted - before) / (now - then) if now - then >= SAMPLE_SECONDS else None


class Worst:
    """The largest of the values seen in the last `RATE_SECONDS`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def look(self, value: float, now: float) -> None:
        """Take note of a value."""
        self._seen.append((now, value))
        while now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()

    def value(self, now: float) -> float:
        """Return the largest; 0 when none was seen lately."""
        return max((value for at, value in self._seen if now - at <= RATE_SECONDS), default=0.0)


class Signals:
    """See the module's docstring."""

    def __init__(self, gate: Gate, first_tokens: FirstTokens, poller: Poller, names: MetricNames) -> None:
        self._gate = gate
        self._first_tokens = first_tokens
        self._poller = poller
        self._names = names
        self._rate = AdmittedRate()
        self._wait = Worst()

    def look(self, now: float) -> None:
        """Take note of what only a look now and then can tell; called every second or two."""
        self._rate.look(self._gate.books.admitted, now)
        # A queue that is full to its budget is a place below it whenever somebody has just gone.
        self._wait.look(self._gate.wait_ratio(now), now)

    def state(self, now: float) -> dict[str, object]:
        """Return what `/state` shows."""
        gate, admitted = self._gate, self._rate.per_second(self._gate.books.admitted, now)
        found: dict[str, object] = {
            "heldBy": gate.held_by_within(RATE_SECONDS, now),
            "queueWaitRatio": round(max(gate.wait_ratio(now), self._wait.value(now)), 4),
            "limit": gate.limit.value,
        }
        if admitted is not None:
            found["admittedPerSecond"] = round(admitted, 4)
        first_token = self._first_tokens.percentile_seconds(now)
        if first_token is not None:
            found["firstTokenMilliseconds"] = round(1000 * first_token, 1)
        text, age = self._poller.metrics, self._poller.metrics_age_seconds
        if text is not None and age is not None:
            found |= engine_values(text, self._names)
            found["engineAgeSeconds"] = round(age, 3)
        return found


def engine_values(text: bytes, names: MetricNames) -> dict[str, float]:
    """Return the values of the engine's text that the slow loop looks at, those that it holds."""
    wanted: dict[str, MetricName] = {"waiting": names.waiting, "running": names.running}
    if names.kv_cache_used is not None:
        wanted["kvCachePercent"] = names.kv_cache_used
    spellings = {spelling for name in wanted.values() for spelling in name.names}
    series: dict[str, list[float]] = {}
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if _name_of(line) in spellings]
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                series.setdefault(sample.name, []).append(sample.value)
    except ValueError:
        return {}
    found = {}
    for key, name in wanted.items():
        values = next((series[spelling] for spelling in name.names if spelling in series), [])
        if values and all(map(math.isfinite, values)):
            value = sum(values) if name.aggregation is Aggregation.SUM else max(values)
            found[key] = round(100 * value, 2) if key == "kvCachePercent" else value
    return found


def _name_of(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]
