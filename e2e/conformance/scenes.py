"""What happens to many requests at once, reduced to what must be the same on any machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.conformance import normal, targets
from e2e.conformance.case import FORCE, SEA
from e2e.conformance.targets import Flock, Kind, Reply, Target
from e2e.fakevllm.engine import Limits
from e2e.fakevllm.server import cache_info

POLL_SECONDS = 0.02
SETTLE_SECONDS = 30.0
TRIES = 10
MANY = 64
"""Requests on two seats that even a fast engine needs some seconds for."""

JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Scene:
    """A scene: the server it needs, which a scene at the end of its profile may stop, and what is observed."""

    name: str
    profile: str
    play: Callable[[Target], dict[str, Any]]


def _body(**fields: Any) -> bytes:
    return json.dumps({"prompt": SEA, "max_tokens": 60, "temperature": 0, "ignore_eos": True, **fields}).encode()


def _value(target: Target, name: str, **labels: str) -> float:
    found = normal.samples(target.send("GET", "/metrics").text)
    return sum(value for metric, have, value in found if metric == f"vllm:{name}" and labels.items() <= have.items())


def _await(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(POLL_SECONDS)
    return False


def _outcome(reply: Reply | str) -> str:
    if isinstance(reply, str):
        return "cut"
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        return (
            "whole"
            if reply.text.endswith("data: [DONE]\n\n") and '"finish_reason":"length"' in reply.text
            else "broken"
        )
    return str(reply.status)


def families(target: Target) -> dict[str, Any]:
    """All metric families after a few requests: names, types, labels, buckets."""
    for path, body in (("/v1/completions", _body(max_tokens=3)), ("/v1/completions", _body(model="none"))):
        target.send("POST", path, data=body, headers=JSON)
    labels = set(cache_info(Limits()))
    _await(lambda: _value(target, "num_requests_running") == 0)
    return normal.metrics(target.send("GET", "/metrics").text, cache_labels=labels)


def counters(target: Target) -> dict[str, Any]:
    """What three requests add to the counters, one of them served from the prefix cache."""
    names = (
        *("prompt_tokens_total", "generation_tokens_total", "request_success_total", "prefix_cache_queries_total"),
        *("prefix_cache_hits_total", "prompt_tokens_cached_total", "num_preemptions_total"),
        *("request_prompt_tokens_sum", "request_generation_tokens_sum", "request_params_max_tokens_sum"),
        *("time_to_first_token_seconds_count", "inter_token_latency_seconds_count", "iteration_tokens_total_count"),
        *("e2e_request_latency_seconds_count", "request_params_n_sum"),
    )
    before = {name: _value(target, name) for name in names}
    long = " ".join(["bread and salt"] * 18)
    for fields in ({"prompt": long}, {"prompt": long}, {"prompt": "No gulls here.", "n": 2, "temperature": 1}):
        target.send("POST", "/v1/completions", data=_body(max_tokens=5, **fields, **FORCE), headers=JSON)
    _await(lambda: _value(target, "num_requests_running") == 0)
    time.sleep(0.5)
    grown = {name: _value(target, name) - before[name] for name in names}
    # An engine may take a step more or less than there are tokens.
    grown["iteration_tokens_total_count"] = float(grown["iteration_tokens_total_count"] > 0)
    return {**grown, "usage_when_idle": _value(target, "kv_cache_usage_perc")}


def seats(target: Target) -> dict[str, Any]:
    """Twelve streams on two seats: two run, the others wait for capacity, all end whole."""
    flock = Flock(target, "/v1/completions", [_body(stream=True, max_tokens=120)] * 12)
    flock.start()
    peak = _await(lambda: _value(target, "num_requests_running") == 2 and _value(target, "num_requests_waiting") > 5)
    reason = _await(lambda: _value(target, "num_requests_waiting_by_reason", reason="capacity") > 0)
    outcomes = Counter(map(_outcome, flock.join()))
    return {"two ran while others waited": peak, "reason": reason, "outcomes": dict(outcomes)}


def pressure(target: Target) -> dict[str, Any]:
    """Twelve answers that together need four times the KV blocks there are: preempted and computed again, none lost."""
    highest = most_running = 0.0
    preempted = _value(target, "num_preemptions_total")
    finished = _value(target, "request_success_total", finished_reason="length")
    flock = Flock(target, "/v1/completions", [_body(prompt=f"{index} {SEA}", max_tokens=120) for index in range(12)])
    flock.start()
    while flock.open:
        highest = max(highest, _value(target, "kv_cache_usage_perc"))
        most_running = max(most_running, _value(target, "num_requests_running"))
        time.sleep(POLL_SECONDS)
    replies = flock.join()
    produced = {json.loads(reply.text)["usage"]["completion_tokens"] for reply in replies if isinstance(reply, Reply)}
    return {
        "outcomes": dict(Counter(map(_outcome, replies))),
        "completion tokens": sorted(produced),
        "usage above 0.8": highest > 0.8,
        "usage at most 1": highest <= 1.0,
        "fewer run than were sent": most_running < 12,
        "preempted": _value(target, "num_preemptions_total") > preempted,
        "finished": _value(target, "request_success_total", finished_reason="length") - finished,
    }


def queue(target: Target) -> dict[str, Any]:
    """Eight requests for four places: the others are refused at once."""
    flock = Flock(target, "/v1/completions", [_body(max_tokens=300)] * 4)
    flock.start()
    _await(lambda: _value(target, "num_requests_running") + _value(target, "num_requests_waiting") == 4)
    refused = [
        target.send("POST", path, data=data, headers=JSON)
        for path, data in (
            ("/v1/completions", _body()),
            ("/v1/completions", _body(stream=True)),
            ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()),
            (
                "/v1/messages",
                json.dumps({"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}).encode(),
            ),
            ("/v1/responses", json.dumps({"input": "x"}).encode()),
            ("/v1/completions", _body(model="none")),
            ("/tokenize", json.dumps({"prompt": "x"}).encode()),
        )
    ]
    outcomes = Counter(map(_outcome, flock.join()))
    many = target.send("POST", "/v1/completions", data=_body(n=5, temperature=1), headers=JSON)
    return {
        "refused": [normal.answer(reply.status, reply.headers, reply.body, exact=True) for reply in refused],
        "retry-after": ["retry-after" in reply.headers for reply in refused],
        "n 5 on four places": normal.answer(many.status, many.headers, many.body),
        "outcomes": dict(outcomes),
        "rejections": _value(target, "admission_rejections_total", reason="max_num_queued_reqs"),
    }


def prefill(target: Target) -> dict[str, Any]:
    """A queue limit in prompt tokens: with one prompt waiting for the one seat, the next ones are refused."""
    flock = Flock(target, "/v1/completions", [_body(max_tokens=200)] * 12)
    flock.start(apart_seconds=0.1)
    replies = [reply for reply in flock.join() if isinstance(reply, Reply)]
    refused: list[dict[str, Any]] = []
    for reply in replies:
        answer = normal.answer(reply.status, reply.headers, reply.body)
        if reply.status != 200 and answer not in refused:
            refused.append(answer)
    return {
        "refused": refused,
        "retry-after": any("retry-after" in reply.headers for reply in replies),
        "some answered": any(reply.status == 200 for reply in replies),
        "counted": _value(target, "admission_rejections_total", reason="max_num_queued_tokens") > 0,
    }


def leaving(target: Target) -> dict[str, Any]:
    """A client that hangs up in the middle of a stream: the engine drops its request, uncounted.

    A fast engine may be through before the client has left, which shows nothing: then it is tried again.
    """
    for _ in range(TRIES):
        before = _value(target, "request_success_total")
        connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)
        connection.request("POST", "/v1/completions", body=_body(stream=True, max_tokens=480), headers=JSON)
        connection.getresponse().read(200)
        ran = _value(target, "num_requests_running")
        connection.close()
        freed = _await(lambda: _value(target, "num_requests_running") == 0)
        counted = _value(target, "request_success_total") - before
        if not counted:
            break
    return {"ran": ran, "freed": freed, "counted": counted}


def drain(target: Target) -> dict[str, Any]:
    """SIGTERM with a shutdown timeout: running and waiting streams end whole, /health stays 200, new requests fail.

    Some of the new ones are cut instead of answered, by chance; the answers are all alike.
    """
    flock = Flock(target, "/v1/completions", [_body(stream=True, max_tokens=450)] * 3)
    flock.start()
    _await(lambda: _value(target, "num_requests_running") == 2)
    target.signal(signal.SIGTERM)
    time.sleep(0.5)
    health = target.send("GET", "/health").status
    answers: list[dict[str, Any]] = []
    for _ in range(6):
        with contextlib.suppress(OSError, http.client.HTTPException):
            reply = target.send("POST", "/v1/completions", data=_body(), headers=JSON)
            answer = normal.answer(reply.status, reply.headers, reply.body)
            if answer not in answers:
                answers.append(answer)
    outcomes = Counter(map(_outcome, flock.join()))
    return {
        "health meanwhile": health,
        "new requests": answers,
        "outcomes": dict(outcomes),
        "exit status": target.wait(),
    }


def stop(target: Target) -> dict[str, Any]:
    """SIGTERM without a shutdown timeout: everything in flight is lost and the port is closed."""
    flock = Flock(target, "/v1/completions", [_body(stream=True, max_tokens=480)] * MANY)
    flock.start()
    # Gauges lag; the first complete answer shows that the others are at the engine.
    _await(lambda: flock.open < MANY)
    target.signal(signal.SIGTERM)
    outcomes = Counter(map(_outcome, flock.join()))
    refused = _await(lambda: _refuses(target))
    return {"some were lost": outcomes["whole"] < MANY, "port closed": refused, "exit status": target.wait()}


def _refuses(target: Target) -> bool:
    with contextlib.suppress(http.client.HTTPException):
        try:
            target.send("GET", "/health")
        except ConnectionError:
            return True
    return False


SCENES = [
    Scene("metrics families", "plain", families),
    Scene("metrics counters", "small", counters),
    Scene("kv pressure", "small", pressure),
    Scene("seats", "seats", seats),
    Scene("client leaves", "seats", leaving),
    Scene("shutdown at once", "seats", stop),
    Scene("queue full", "queue", queue),
    Scene("shutdown with timeout", "queue", drain),
    Scene("prefill queue full", "prefill", prefill),
]
"""In the order in which those of one profile share a server."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "unknown flag": ("--no-such-flag",),
    "flag without its value": ("--port",),
    "port no number": ("--port", "http"),
    "underscores": ("--max_model_len", "many"),
}
"""Command lines that must not start a server."""


def refused_start(kind: Kind, flags: tuple[str, ...]) -> dict[str, Any]:
    """Return how a command line is refused: status and last line of the complaint."""
    with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as name:
        done = subprocess.run(
            targets.argv(kind, targets.model_folder(), flags),
            env=targets.environment(kind, Path(name)),
            capture_output=True,
            text=True,
            timeout=targets.READY_SECONDS,
            check=False,
        )
    complaint = [line for line in done.stderr.splitlines() if "error:" in line]
    return {"status": done.returncode, "complaint": complaint[-1].split("error:", 1)[1].strip() if complaint else None}
