"""Metrics of admission tell what happened, under labels that nobody outside can make up."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from penstock.limiter.admissionmetrics import WAIT_BUCKETS_SECONDS, WaitHistogram

TRUSTED = {"identifyBy": "ClientAddress", "trustedProxies": ["127.0.0.0/8"], "default": {}}


def samples(text: str, *, without: str = "process_") -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
            if not one.name.startswith(without):
                found[f"{one.name}{{{labels}}}" if labels else one.name] = one.value
    return found


async def shown(rig) -> dict[str, float]:
    return samples((await rig.admin("/metrics")).body.decode())


async def test_all_that_happens_to_requests_is_counted(open_rig) -> None:
    limit = {"name": "prompts", "unit": "PromptTokens", "limit": 1000}
    async with open_rig(
        concurrency={"maximum": 1}, queue={"maxRequests": 2}, tenants=TRUSTED, rateLimits=[limit], retryBudgetPercent=0
    ) as rig:
        held = rig.hold()
        await rig.begin(b'{"stream": true, "prompt": "%b"}' % (b"x" * 36))
        await rig.until(lambda: len(held.calls) == 1)
        late = await rig.queue(b"{ }", headers="x-penstock-deadline-ms: 100\r\n")
        await late.reply()
        leaves = await rig.queue(b"{  }")
        leaves.reset()
        await rig.until(lambda: not len(rig.limiter.admission.room))
        await rig.queue(b"{   }")
        await rig.queue(b"{    }", headers="x-penstock-priority: batch\r\n")
        await rig.post(b"{     }", headers="x-penstock-priority: batch\r\n")
        await rig.post(headers="x-stainless-retry-count: 1\r\n")
        await rig.post(b'{"prompt": "%b"}' % (b"x" * 10_000))
        found = await shown(rig)
        expected = {
            "penstock_in_flight": 1,
            "penstock_admitted_total": 1,
            "penstock_cancelled_total": 0,
            "penstock_permit_drift": 0,
            "penstock_limit{kind=requests}": 1,
            "penstock_prefill_backlog_tokens": 10,
            "penstock_queue_depth{class=normal}": 1,
            "penstock_queue_depth{class=batch}": 1,
            "penstock_queue_depth{class=interactive}": 0,
            "penstock_queue_wait_seconds_count{class=normal,outcome=queue_timeout}": 1,
            "penstock_left_queue_total": 1,
            "penstock_shed_total{class=normal,reason=queue_timeout}": 1,
            "penstock_shed_total{class=batch,reason=queue_full}": 1,
            "penstock_shed_total{class=normal,reason=retry_budget}": 1,
            "penstock_shed_total{class=normal,reason=never_fits}": 1,
            "penstock_retry_budget": 0,
            "penstock_demand": 1 + 2 + 3,
            "penstock_refusals_total{reason=never_fits}": 1,
            "penstock_refusals_total{reason=retry_budget_exhausted}": 1,
            "penstock_refusals_total{reason=overloaded}": 1,
        }
        assert {name: found.get(name) for name in expected} == expected
        for number in range(3):
            await rig.until(lambda: len(held.calls) > number)  # noqa: B023 - awaited at once
            held.answer(number)
        await rig.settled()
        found = await shown(rig)
        assert found["penstock_finished_total{outcome=success}"] == 3
        assert found["penstock_queue_wait_seconds_count{class=batch,outcome=granted}"] == 1
        assert found["penstock_prefill_backlog_tokens"] == 0


async def test_callers_cannot_make_labels(open_rig) -> None:
    async with open_rig(tenants=TRUSTED) as rig:
        before = set(await shown(rig))
        for number in range(3):
            await rig.post(headers=f"x-penstock-priority: made-up-{number}\r\nX-Forwarded-For: 1.2.3.{number}\r\n")
        assert set(await shown(rig)) == before


async def test_the_keys_are_watched_where_there_are_any(open_rig, tmp_path) -> None:
    (tmp_path / "keys").mkdir()
    async with open_rig(settings_of={"tenants_path": str(tmp_path / "keys")}) as rig:
        assert (await shown(rig))["penstock_api_keys_rejected_total"] == 0


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.011, 5.0, 60.0, 61.0])
def test_a_wait_is_in_every_bucket_it_is_not_above(seconds: float) -> None:
    histogram = WaitHistogram()
    histogram.observe(seconds, band="normal", outcome="granted")
    histogram.observe(seconds, band="normal", outcome="granted")

    class One(Collector):
        def collect(self):
            yield histogram.collect()

    registry = CollectorRegistry()
    registry.register(One())
    found = samples(generate_latest(registry).decode())
    labels = "class=normal,outcome=granted"
    counts = {
        bound: found[f"penstock_queue_wait_seconds_bucket{{class=normal,le={bound},outcome=granted}}"]
        for bound in WAIT_BUCKETS_SECONDS
    }
    assert counts == {bound: 2 * (seconds <= bound) for bound in WAIT_BUCKETS_SECONDS}
    assert found["penstock_queue_wait_seconds_bucket{class=normal,le=+Inf,outcome=granted}"] == 2
    assert found[f"penstock_queue_wait_seconds_sum{{{labels}}}"] == 2 * seconds
