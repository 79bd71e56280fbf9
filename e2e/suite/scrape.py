"""Metrics of one replica, read where Prometheus reads them: at its limiter."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from e2e.suite.backends import ADMIN_PORT

RUNNING = {"LlamaCpp": "llamacpp:requests_processing", "VLLM": "vllm:num_requests_running"}
"""Requests the engine works on, by engine type."""

HELD_BACK = {"LlamaCpp": "llamacpp:requests_deferred", "VLLM": "vllm:num_requests_waiting"}
"""Requests the engine has taken and does not work on yet, by engine type."""


def limiter_total(pod: Any, name: str, **labels: str) -> float:
    """Return the sum of the limiter's series of that name with these labels; 0 when there is none.

    Args:
        pod: The replica.
        name: Name of the samples, `_total` included.
        labels: Labels that a series must have; it may have others.
    """
    return _total(_read(pod, "/metrics"), name, labels)


def engine_load(pod: Any, engine: str) -> tuple[int, int] | None:
    """Return how many requests the engine works on and how many it holds back, as it says itself.

    The limiter asks it once in a second or two. None means that it has not been heard of for some seconds.

    Args:
        pod: The replica.
        engine: Its engine type.
    """
    try:
        text = _read(pod, "/engine/metrics")
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise
    return int(_total(text, RUNNING[engine], {})), int(_total(text, HELD_BACK[engine], {}))


def _read(pod: Any, path: str) -> str:
    with urllib.request.urlopen(f"http://{pod.status.pod_ip}:{ADMIN_PORT}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def _total(text: str, name: str, labels: dict[str, str]) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
