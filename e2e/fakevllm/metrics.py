"""What `/metrics` shows: vLLM's families by emulated version, and the HTTP server's own.

`FAMILIES` says since and until which version a family exists, so a test can ask for an old engine's spelling.
Gauges are set from the engine when a step ends, never in between, as in vLLM: an engine that hangs shows the
numbers of its last step for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
)
from prometheus_client.exposition import generate_latest

from e2e.fakevllm.engine import Emission, Engine, Finish, Sequence, Step
from e2e.fakevllm.faults import Fault

Version = tuple[int, int]
ALWAYS: Version = (0, 0)
NEVER: Version = (99, 0)

LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560),
)
BETWEEN_TOKENS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HTTP_FINE = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
HTTP_COARSE = (0.1, 0.5, 1)
REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family: its kind, what it counts, the versions that have it, and the values of its extra label."""

    kind: type[Counter | Gauge | Histogram]
    text: str
    since: Version = ALWAYS
    until: Version = NEVER
    label: str = ""
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] | str = ()
    engine: bool = True


FAMILIES: dict[str, Family] = {
    "estimated_flops_per_gpu": Family(Counter, "Estimated operations.", (0, 20)),
    "estimated_read_bytes_per_gpu": Family(Counter, "Estimated bytes read.", (0, 20)),
    "estimated_write_bytes_per_gpu": Family(Counter, "Estimated bytes written.", (0, 20)),
    "num_requests_running": Family(Gauge, "Sequences in the running batch."),
    "num_requests_waiting": Family(Gauge, "Sequences waiting for a seat or for blocks."),
    "num_requests_waiting_by_reason": Family(
        Gauge, "Waiting sequences by reason.", (0, 20), label="reason", values=("capacity", "deferred")
    ),
    "engine_sleep_state": Family(
        Gauge, "Sleep state.", (0, 12), label="sleep_state", values=("awake", "weights_offloaded", "discard_all")
    ),
    "kv_cache_usage_perc": Family(Gauge, "Share of KV blocks in use, 0 to 1.", (0, 9)),
    "gpu_cache_usage_perc": Family(Gauge, "Share of KV blocks in use, 0 to 1 (old name).", until=(0, 11)),
    "prefix_cache_queries": Family(Counter, "Prompt tokens looked up in the prefix cache.", (0, 9)),
    "prefix_cache_hits": Family(Counter, "Prompt tokens found in the prefix cache.", (0, 9)),
    "gpu_prefix_cache_queries": Family(Counter, "Prompt tokens looked up (old name).", until=(0, 11)),
    "gpu_prefix_cache_hits": Family(Counter, "Prompt tokens found (old name).", until=(0, 11)),
    "external_prefix_cache_queries": Family(Counter, "Tokens looked up in other instances.", (0, 12)),
    "external_prefix_cache_hits": Family(Counter, "Tokens found in other instances.", (0, 12)),
    "mm_cache_queries": Family(Counter, "Media items looked up.", (0, 12)),
    "mm_cache_hits": Family(Counter, "Media items found.", (0, 12)),
    "num_preemptions": Family(Counter, "Sequences that lost their blocks and start again."),
    "prompt_tokens": Family(Counter, "Prompt tokens of sequences that reached their first token."),
    "prompt_tokens_by_source": Family(
        Counter,
        "Prompt tokens by where they came from.",
        (0, 16),
        label="source",
        values=("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    "prompt_tokens_cached": Family(Counter, "Prompt tokens not computed.", (0, 16)),
    "prompt_tokens_cached_by_source": Family(
        Counter,
        "Prompt tokens not computed, by cache.",
        (0, 32),
        label="source",
        values=("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    "generation_tokens": Family(Counter, "Tokens generated."),
    "request_success": Family(Counter, "Finished requests.", label="finished_reason", values=REASONS),
    "admission_rejections": Family(
        Counter,
        "Requests refused by a queue limit.",
        (0, 32),
        label="reason",
        values=("max_num_queued_reqs", "max_num_queued_tokens"),
        engine=False,
    ),
    "request_prompt_tokens": Family(Histogram, "Prompt tokens per request.", buckets="model"),
    "request_generation_tokens": Family(Histogram, "Generated tokens per request.", buckets="model"),
    "iteration_tokens_total": Family(Histogram, "Tokens computed per step.", buckets=STEP_TOKENS),
    "request_max_num_generation_tokens": Family(Histogram, "Longest of n answers.", buckets="model"),
    "request_params_n": Family(Histogram, "Parameter n.", buckets=(1, 2, 5, 10, 20)),
    "request_params_max_tokens": Family(Histogram, "Parameter max_tokens.", buckets="model"),
    "time_to_first_token_seconds": Family(Histogram, "Arrival to first token.", buckets=FIRST_TOKEN),
    "time_per_output_token_seconds": Family(
        Histogram, "Between tokens (old name).", until=(0, 12), buckets=BETWEEN_TOKENS
    ),
    "inter_token_latency_seconds": Family(Histogram, "Between tokens.", (0, 10), buckets=BETWEEN_TOKENS),
    "request_time_per_output_token_seconds": Family(
        Histogram, "Mean time between a request's tokens.", (0, 11), buckets=BETWEEN_TOKENS
    ),
    "e2e_request_latency_seconds": Family(Histogram, "Arrival to last token.", buckets=LATENCY),
    "request_queue_time_seconds": Family(Histogram, "Arrival to first schedule.", buckets=LATENCY),
    "request_inference_time_seconds": Family(Histogram, "First schedule to last token.", buckets=LATENCY),
    "request_prefill_time_seconds": Family(Histogram, "First schedule to first token.", buckets=LATENCY),
    "request_decode_time_seconds": Family(Histogram, "First to last token.", buckets=LATENCY),
    "request_num_preemptions": Family(Histogram, "Preemptions per request.", (0, 32), buckets=(1, 2, 3, 4, 5, 10, 20)),
    "request_prefill_kv_computed_tokens": Family(
        Histogram, "Prompt tokens computed per request.", (0, 13), buckets="model"
    ),
}


def token_buckets(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to the limit."""
    return tuple(step * 10**power for power in range(9) for step in (1, 2, 5) if step * 10**power <= limit)


class Metrics:
    """Everything one server counts.

    Args:
        version: The emulated vLLM version.
        model: The `model_name` label: the first served name.
        engine: Where gauges and counters of the scheduler are read.
        cache_info: Labels of `cache_config_info`.

    Attributes:
        pretence: What the gauges show in the engine's place.
    """

    def __init__(self, *, version: Version, model: str, engine: Engine, cache_info: dict[str, str]) -> None:
        self.registry = CollectorRegistry()
        self.pretence: Fault | None = None
        GCCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        ProcessCollector(registry=self.registry)
        self._engine = engine
        self._children: dict[tuple[str, str], Counter | Gauge | Histogram] = {}
        for name, family in FAMILIES.items():
            if family.since <= version < family.until:
                self._register(name, family, model=model, limit=engine.limits.max_model_tokens)
        gauge = Gauge("vllm:cache_config_info", "The KV cache's settings.", [*cache_info], registry=self.registry)
        gauge.labels(**cache_info).set(1)
        self._counted = dict.fromkeys(("num_preemptions", "prefix_cache_queries", "prefix_cache_hits"), 0)
        self._set("engine_sleep_state", 1, label="awake")
        self._http()

    def _register(self, name: str, family: Family, *, model: str, limit: int) -> None:
        labels = {"model_name": model, **({"engine": "0"} if family.engine else {})}
        names = [*labels, *([family.label] if family.label else [])]
        if family.kind is Histogram:
            buckets = token_buckets(limit) if family.buckets == "model" else tuple(map(float, family.buckets))
            metric = Histogram(f"vllm:{name}", family.text, names, buckets=buckets, registry=self.registry)
        else:
            metric = family.kind(f"vllm:{name}", family.text, names, registry=self.registry)  # type: ignore[assignment]
        for value in family.values or ("",):
            own = {family.label: value} if family.label else {}
            self._children[name, value] = metric.labels(**labels, **own)

    def _http(self) -> None:
        registry = self.registry
        self._requests = Counter(
            "http_requests", "Answers by status class.", ["method", "status", "handler"], registry=registry
        )
        self._request_size = Summary("http_request_size_bytes", "Request bodies.", ["handler"], registry=registry)
        self._response_size = Summary("http_response_size_bytes", "Response bodies.", ["handler"], registry=registry)
        self._fine = Histogram(
            "http_request_duration_highr_seconds", "All requests.", buckets=HTTP_FINE, registry=registry
        )
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "By handler.",
            ["method", "handler"],
            buckets=HTTP_COARSE,
            registry=registry,
        )

    def _add(self, name: str, amount: float, *, label: str = "") -> None:
        child = self._children.get((name, label))
        if isinstance(child, Counter):
            child.inc(amount)

    def _set(self, name: str, value: float, *, label: str = "") -> None:
        child = self._children.get((name, label))
        if isinstance(child, Gauge):
            child.set(value)

    def _observe(self, name: str, value: float) -> None:
        child = self._children.get((name, ""))
        if isinstance(child, Histogram):
            child.observe(value)

    def stepped(self, step: Step | None) -> None:
        """Take the gauges and counters from the engine after a step; None when only the queue has changed."""
        engine, pretence = self._engine, self.pretence
        waiting: float = len(engine.waiting)
        usage = engine.pool.usage
        if pretence is not None:
            waiting = waiting if pretence.waiting is None else pretence.waiting
            usage = usage if pretence.kv_cache is None else pretence.kv_cache
        self._set("num_requests_running", len(engine.running))
        self._set("num_requests_waiting", waiting)
        self._set("num_requests_waiting_by_reason", waiting, label="capacity")
        for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
            self._set(name, usage)
        counters = engine.counters
        now = {
            "num_preemptions": counters.preemptions,
            "prefix_cache_queries": counters.prefix_queries,
            "prefix_cache_hits": counters.prefix_hits,
        }
        for name, value in now.items():
            grown = value - self._counted[name]
            self._counted[name] = value
            self._add(name, grown)
            self._add(f"gpu_{name}", grown)
        if step is not None:
            self._observe("iteration_tokens_total", step.total)

    def emitted(self, emission: Emission) -> None:
        """Count one new token."""
        sequence = emission.sequence
        now = sequence.last_token_at or 0.0
        self._add("generation_tokens", 1)
        if emission.first:
            prompt, cached = len(sequence.wish.prompt), sequence.cached or 0
            self._add("prompt_tokens", prompt)
            self._add("prompt_tokens_by_source", prompt - cached, label="local_compute")
            self._add("prompt_tokens_by_source", cached, label="local_cache_hit")
            self._add("prompt_tokens_cached", cached)
            self._add("prompt_tokens_cached_by_source", cached, label="device")
            self._observe("time_to_first_token_seconds", now - sequence.queued_at)
        elif emission.previous_at is not None:
            for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
                self._observe(name, now - emission.previous_at)

    def request_finished(self, *, n: int, longest: int) -> None:
        """Count a request whose n answers are all finished; `longest` is the tokens of the longest."""
        self._observe("request_params_n", n)
        self._observe("request_max_num_generation_tokens", longest)

    def finished(self, sequence: Sequence, finish: Finish) -> None:
        """Count a finished sequence; one whose client has left is not counted, as in vLLM."""
        first, last = sequence.first_token_at, sequence.last_token_at
        scheduled = sequence.scheduled_at
        self._add("request_success", 1, label=finish)
        self._observe("request_prompt_tokens", len(sequence.wish.prompt))
        self._observe("request_generation_tokens", sequence.produced)
        self._observe("request_params_max_tokens", sequence.wish.max_tokens)
        self._observe("request_num_preemptions", sequence.preemptions)
        self._observe("request_prefill_kv_computed_tokens", len(sequence.wish.prompt) - (sequence.cached or 0))
        if first is None or last is None or scheduled is None:
            return
        self._observe("e2e_request_latency_seconds", last - sequence.queued_at)
        self._observe("request_queue_time_seconds", scheduled - sequence.queued_at)
        self._observe("request_inference_time_seconds", last - scheduled)
        self._observe("request_prefill_time_seconds", first - scheduled)
        self._observe("request_decode_time_seconds", last - first)
        if sequence.produced > 1:
            self._observe("request_time_per_output_token_seconds", (last - first) / (sequence.produced - 1))

    def rejected(self, reason: str) -> None:
        """Count a request refused by a queue limit."""
        self._add("admission_rejections", 1, label=reason)

    def answered(self, *, method: str, handler: str, status: int, seconds: float, received: int, sent: int) -> None:
        """Count one HTTP answer; sizes in bytes."""
        self._requests.labels(method, f"{status // 100}xx", handler).inc()
        self._request_size.labels(handler).observe(received)
        self._response_size.labels(handler).observe(sent)
        self._fine.observe(seconds)
        self._coarse.labels(method, handler).observe(seconds)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)
