"""Health and metrics over HTTP."""

import aiohttp
import pytest

from penstock.kube.kinds import LLM_BACKEND
from penstock.reconcile.cache import Cache
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key
from penstock.runtime.endpoints import Endpoints
from penstock.runtime.metrics import Metrics


class Running:
    """Endpoints on free ports."""

    def __init__(self):
        self.missing, self.sick, self.leading = "starting", "", True
        self.cache, self.queue = Cache(), WorkQueue()
        self.metrics = Metrics(self.queue, self.cache, leading=lambda: self.leading, oldest_watch=lambda: 7.0)
        self.endpoints = Endpoints(self.metrics.registry, unready=lambda: self.missing, sick=lambda: self.sick)

    async def get(self, which, path):
        url = f"http://127.0.0.1:{self.endpoints.ports[which]}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def running():
    running = Running()
    await running.endpoints.start("127.0.0.1", health_port=0, metrics_port=0)
    yield running
    await running.endpoints.stop()


async def test_alive_before_it_is_ready(running):
    assert await running.get(0, "/healthz") == (200, "ok\n")
    assert await running.get(0, "/readyz") == (503, "starting\n")
    running.missing = ""
    assert await running.get(0, "/readyz") == (200, "ok\n")


async def test_a_process_that_should_be_started_anew_says_why(running):
    running.sick = "a watch is dead"
    assert await running.get(0, "/healthz") == (503, "a watch is dead\n")


async def test_a_replica_that_stands_by_has_no_queue_to_be_alarmed_about(running):
    running.queue.add(Key("n", "x"))
    running.leading = False
    _status, text = await running.get(1, "/metrics")
    assert "penstock_operator_leader 0.0" in text
    assert "penstock_operator_queue_depth 0.0" in text
    assert "penstock_operator_queue_oldest_seconds 0.0" in text


async def test_metrics_show_queue_passes_requests_and_backends(running):
    running.queue.add(Key("n", "x"))
    running.metrics.reconciled("Done", 0.1)
    running.metrics.requested("apply", "Service", "ok")
    metadata = {"name": "x", "namespace": "n", "resourceVersion": "1"}
    conditions = [{"type": "Available", "status": "False"}, {"type": "Ready", "status": "True"}]
    running.cache.store(LLM_BACKEND, {"metadata": metadata, "status": {"conditions": conditions}})
    running.cache.store(LLM_BACKEND, {"metadata": metadata | {"name": "y"}})
    status, text = await running.get(1, "/metrics")
    assert status == 200
    lines = text.splitlines()
    assert "penstock_operator_queue_depth 1.0" in lines
    assert "penstock_operator_leader 1.0" in lines
    assert "penstock_operator_watch_oldest_seconds 7.0" in lines
    assert 'penstock_operator_applies_total{kind="Service",result="ok"} 1.0' in lines
    assert 'penstock_operator_reconciles_total{outcome="done"} 1.0' in lines
    assert 'penstock_operator_api_requests_total{kind="Service",result="ok",verb="apply"} 1.0' in lines
    assert 'penstock_operator_backends{ready="True"} 1.0' in lines
    assert 'penstock_operator_backends{ready="False"} 0.0' in lines
    assert 'penstock_operator_backends{ready="Unknown"} 1.0' in lines


async def test_health_and_metrics_are_apart(running):
    assert (await running.get(0, "/metrics"))[0] == 404
    assert (await running.get(1, "/healthz"))[0] == 404


async def test_two_operators_have_metrics_of_their_own():
    first, second = Running(), Running()
    first.metrics.reconciled("Done", 0.1)
    value = second.metrics.registry.get_sample_value("penstock_operator_reconciles_total", {"outcome": "done"})
    assert value is None
