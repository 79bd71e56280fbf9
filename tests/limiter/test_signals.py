"""What a replica tells the slow loop of itself."""

from __future__ import annotations

import json

import pytest

from penstock.api.engine import EngineType
from penstock.engines.engine import for_type
from penstock.limiter.firsttoken import KEPT, FirstTokens
from penstock.limiter.signals import AdmittedRate, Worst, engine_values

VLLM = for_type(EngineType.VLLM).facts.metrics
LLAMA = for_type(EngineType.LLAMA_CPP).facts.metrics


TWO_ENGINES = b"""\
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:num_requests_running{engine="0"} 2.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
"""


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        (TWO_ENGINES, VLLM, {"waiting": 7, "running": 2, "kvCachePercent": 50}),
        (b"vllm:gpu_cache_usage_perc 0.95\n", VLLM, {"kvCachePercent": 95}),
        (b"vllm:gpu_cache_usage_perc 0.95\nvllm:kv_cache_usage_perc 0.2\n", VLLM, {"kvCachePercent": 20}),
        (b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n", LLAMA, {"running": 2, "waiting": 1}),
        (b"vllm:num_requests_waiting NaN\nvllm:num_requests_running +Inf\n", VLLM, {}),
        (b"vllm:num_requests_waiting many\n", VLLM, {}),
        (b"vllm:num_requests_waiting_by_reason 5\n", VLLM, {}),
        (b"# TYPE x gauge\nx 1\n", VLLM, {}),
        (b"\xff\xfe", VLLM, {}),
        (b"", VLLM, {}),
    ],
    ids=[
        "two engines", "the older name", "both names", "llama.cpp", "no numbers", "garbage", "a longer name",
        "others", "no text", "nothing",
    ],
)  # fmt: skip
def test_of_the_engines_text_only_what_is_there_is_told(text, names, expected) -> None:
    assert engine_values(text, names) == expected


def test_the_admitted_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = AdmittedRate()
    assert rate.per_second(0, 0.0) is None
    for second in range(60):
        rate.look(5 * second, float(second))
    assert rate.per_second(300, 60.0) == pytest.approx(5.0)
    for second in range(60, 80):
        rate.look(300, float(second))
    assert rate.per_second(300, 80.0) == 0.0


def test_the_rate_of_less_than_a_second_is_unknown() -> None:
    rate = AdmittedRate()
    rate.look(0, 100.0)
    assert rate.per_second(50, 100.9) is None
    assert rate.per_second(50, 101.0) == 50.0


def test_the_worst_of_the_last_ten_seconds_counts() -> None:
    worst = Worst()
    assert worst.value(0.0) == 0.0
    for second, value in enumerate([0.5, 2.0, 1.0, 0.1]):
        worst.look(value, float(second))
    assert worst.value(4.0) == 2.0
    assert worst.value(12.0) == 1.0
    assert worst.value(14.0) == 0.0


class TestFirstTokens:
    def test_too_few_say_nothing(self) -> None:
        times = FirstTokens()
        for _ in range(2):
            times.note(1.0, 0.0)
        assert times.percentile_seconds(0.0) is None

    def test_it_is_the_time_that_all_but_a_twentieth_took_at_most(self) -> None:
        times = FirstTokens()
        for number in range(1, 101):
            times.note(number / 100, 0.0)
        assert times.percentile_seconds(1.0) == 0.95

    def test_what_is_older_than_ten_seconds_does_not_count(self) -> None:
        times = FirstTokens()
        for _ in range(10):
            times.note(9.0, 0.0)
        for _ in range(10):
            times.note(1.0, 8.0)
        assert times.percentile_seconds(9.0) == 9.0
        assert times.percentile_seconds(11.0) == 1.0
        assert times.percentile_seconds(19.0) is None

    def test_memory_is_bounded(self) -> None:
        times = FirstTokens()
        for _ in range(10 * KEPT):
            times.note(1.0, 0.0)
        assert len(times._seen) == KEPT


async def state(rig) -> dict[str, object]:
    return json.loads((await rig.admin("/state")).body)["signals"]


async def test_a_replica_shows_its_signals(rig) -> None:
    rig.engine.metrics = b"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\nvllm:num_requests_waiting 7\n"
    await rig.until(lambda: b"waiting" in (rig.limiter.poller.metrics or b""))
    for _ in range(3):
        await rig.post(b'{"stream": true, "prompt": "x"}')
    found = await state(rig)
    assert (found["waiting"], found["heldBy"], found["queueWaitRatio"]) == (7, "none", 0)
    assert 0 < found["firstTokenMilliseconds"] < 5000
    assert found["engineAgeSeconds"] >= 0
    assert "kvCachePercent" not in found


async def test_answers_in_one_piece_say_nothing_of_first_tokens(rig) -> None:
    for _ in range(5):
        await rig.post(b'{"prompt": "x"}')
    assert "firstTokenMilliseconds" not in await state(rig)


async def test_without_the_engines_metrics_nothing_is_told_of_it(rig) -> None:
    rig.engine.metrics = b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"
    await rig.until(lambda: rig.limiter.poller.metrics is None)
    found = await state(rig)
    assert not found.keys() & {"waiting", "running", "kvCachePercent", "engineAgeSeconds"}


async def test_what_r_holds_is_counted_and_r_is_shown(rig) -> None:
    assert "\npenstock_admission_rate_per_second " not in (await rig.admin("/metrics")).body.decode()
    rig.limiter.admission.gate.set_rate(5.0, rig.limiter.admission.now())
    for _ in range(3):
        await rig.post()
    text = (await rig.admin("/metrics")).body.decode()
    assert "\npenstock_admission_rate_per_second 5.0" in text
    assert "\npenstock_paced_total 2.0" in text
