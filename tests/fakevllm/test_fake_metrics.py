"""The metric families of an emulated version, and what moves them."""

import pytest

from e2e.conformance import normal
from e2e.fakevllm.engine import Engine, Finish, Limits, Wish
from e2e.fakevllm.metrics import Metrics, token_buckets
from e2e.fakevllm.sampler import Sampler


def make(version: tuple[int, int] = (0, 32), **limits) -> tuple[Engine, Metrics]:
    engine = Engine(Limits(**{"blocks": 11, "block_size": 4, **limits}), Sampler(range(10), 10))
    return engine, Metrics(version=version, model="m", engine=engine, cache_info={"block_size": "4"})


def values(metrics: Metrics) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, labels, value in normal.samples(metrics.text().decode()):
        key = name.removeprefix("vllm:")
        for label in ("reason", "finished_reason", "source"):
            if label in labels:
                found[f"{key}/{labels[label]}"] = value
        found[key] = value
    return found


@pytest.mark.parametrize(
    ("version", "present", "absent"),
    [
        ((0, 8), {"gpu_cache_usage_perc", "time_per_output_token_seconds_count"}, {"kv_cache_usage_perc"}),
        ((0, 9), {"gpu_cache_usage_perc", "kv_cache_usage_perc"}, {"inter_token_latency_seconds_count"}),
        ((0, 10), {"gpu_cache_usage_perc", "inter_token_latency_seconds_count"}, {"num_requests_waiting_by_reason"}),
        ((0, 12), {"kv_cache_usage_perc", "inter_token_latency_seconds_count"}, {"gpu_cache_usage_perc"}),
        ((0, 20), {"num_requests_waiting_by_reason"}, {"admission_rejections_total", "gpu_cache_usage_perc"}),
        (
            (0, 32),
            {"num_requests_waiting_by_reason", "admission_rejections_total"},
            {"time_per_output_token_seconds_count"},
        ),
    ],
)
def test_families_are_those_of_the_version(version, present, absent):
    names = values(make(version)[1]).keys()
    assert present <= names
    assert not absent & names


@pytest.mark.parametrize("version", [(0, 8), (0, 9), (0, 32)])
def test_both_spellings_show_the_same_usage(version):
    engine, metrics = make(version)
    engine.submit(Wish(prompt=(1, 2, 3, 4, 5), max_tokens=9), now=0.0)
    engine.schedule(now=0.0)
    metrics.stepped(None)
    found = values(metrics)
    shown = {found[name] for name in ("gpu_cache_usage_perc", "kv_cache_usage_perc") if name in found}
    assert [round(value, 9) for value in shown] == [0.2]


def test_a_request_moves_counters_and_histograms():
    engine, metrics = make()
    sequence = engine.submit(Wish(prompt=(1, 2, 3), max_tokens=2), now=1.0)
    for now in (2.0, 3.0):
        step = engine.schedule(now=now)
        for emission in engine.complete(step, now=now + 0.5):
            metrics.emitted(emission)
        metrics.stepped(step)
    metrics.finished(sequence, Finish.LENGTH)
    found = values(metrics)
    expected = {
        "prompt_tokens_total": 3,
        "generation_tokens_total": 2,
        "request_success_total/length": 1,
        "request_success_total/stop": 0,
        "time_to_first_token_seconds_sum": 1.5,
        "inter_token_latency_seconds_sum": 1.0,
        "iteration_tokens_total_sum": 4,
        "request_queue_time_seconds_sum": 1.0,
        "e2e_request_latency_seconds_sum": 2.5,
        "num_requests_running": 0,
    }
    assert {name: found[name] for name in expected} == expected


def test_rejections_are_counted_by_reason():
    _, metrics = make()
    metrics.rejected("max_num_queued_reqs")
    found = values(metrics)
    assert found["admission_rejections_total/max_num_queued_reqs"] == 1
    assert found["admission_rejections_total/max_num_queued_tokens"] == 0


@pytest.mark.parametrize(
    ("limit", "buckets"), [(10, (1, 2, 5, 10)), (512, (1, 2, 5, 10, 20, 50, 100, 200, 500)), (1, (1,))]
)
def test_token_buckets_end_at_the_context(limit, buckets):
    assert token_buckets(limit) == buckets
