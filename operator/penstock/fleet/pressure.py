"""How loaded a replica is: the largest of what is known, each as a part of its target.

    signal             | target                                  | counts for
    -------------------|-----------------------------------------|-----------------------------------
    waiting            | `targets.waitingRequests`               | vLLM
    kvCachePercent     | `targets.kvCachePercent`                | vLLM
    slots              | the limit, which is the number of slots | llama.cpp
    queueWait          | what the request's class may wait       | all, while the limit holds requests
    firstToken         | `targets.timeToFirstTokenMilliseconds`  | all, where that is set

1 is the point up to which a replica is as loaded as it should be; a target that is changed moves it. What is unknown
is left out, and a replica of which nothing is known has no pressure, which is not the same as none. Slots that are all
in use are a full replica and no overload, so they never say more than 1.

The own queue counts only while it is the limit that holds requests. Those that the admission rate holds would keep the
pressure up that keeps the rate down. The first token is waited for from the admission on, so R has no part in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.api.admission import Targets
from penstock.api.engine import EngineType
from penstock.fleet.signals import HeldBy, ReplicaSignals, Signal


class Pressure(NamedTuple):
    """Pressure of a replica, and where it comes from; the largest compares as the largest.

    Attributes:
        ratio: 1 is fully loaded.
        signal: Name of the signal.
        value: The signal's value.
        age_seconds: Its age.
    """

    ratio: float
    signal: str
    value: float
    age_seconds: float


def pressure_of(signals: ReplicaSignals, targets: Targets, engine: EngineType) -> Pressure | None:
    """Return the pressure of a replica, None when nothing is known."""
    return max(_parts(signals, targets, engine), default=None)


def _parts(signals: ReplicaSignals, targets: Targets, engine: EngineType) -> Iterator[Pressure]:
    if engine is EngineType.LLAMA_CPP:
        if signals.limit is not None and signals.limit.value > 0:
            yield from _part("slots", signals.running, signals.limit.value, most=1.0)
    else:
        yield from _part("waiting", signals.waiting, targets.waiting_requests)
        yield from _part("kvCachePercent", signals.kv_cache_percent, targets.kv_cache_percent)
    if targets.time_to_first_token_milliseconds is not None:
        yield from _part("firstToken", signals.first_token_milliseconds, targets.time_to_first_token_milliseconds)
    if signals.held_by is HeldBy.LIMIT or signals.held_by is HeldBy.NONE:
        yield from _part("queueWait", signals.queue_wait_ratio, 1.0)


def _part(name: str, signal: Signal | None, target: float, *, most: float = float("inf")) -> Iterator[Pressure]:
    if signal is not None:
        yield Pressure(min(signal.value / target, most), name, signal.value, signal.age_seconds)
