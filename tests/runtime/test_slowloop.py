"""The slow loop with all it stands on, and what it shows to Prometheus."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.api.admission import AdmissionPolicy
from penstock.api.engine import EngineType
from penstock.api.push import PushResult
from penstock.api.status import SignalOrigin
from penstock.fleet.law import Rate, Rule
from penstock.fleet.pressure import Pressure
from penstock.fleet.push import Target
from penstock.fleet.signals import Replica, Subject
from penstock.fleet.signing import SigningKey
from penstock.fleet.target import FleetTarget, FleetView
from penstock.resources.objects import Key
from penstock.runtime.fleetmetrics import FleetMetrics
from penstock.runtime.settings import OperatorSettings
from penstock.runtime.slowloop import SlowLoop, _prometheus

KEY = SigningKey(b"k" * 32)


def settings(**values):
    return OperatorSettings(image="penstock:1", **values)


@pytest.fixture
async def loop_of():
    made = []

    def make(**values):
        made.append(
            SlowLoop(settings(**values), KEY, may_push=lambda: False, epoch=lambda: 0, changed=lambda _key: None)
        )
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_without_an_address_there_is_no_prometheus(loop_of):
    assert loop_of()._prometheus is None


async def test_prometheus_is_asked_as_the_settings_say():
    source = _prometheus(
        settings(
            prometheus_url="http://127.0.0.1:1/prefix",
            prometheus_headers=("X-Scope-OrgID=team-a", "X-Other=a=b"),
            prometheus_token_file=Path("/token"),
            prometheus_ca_file=Path("/ca.crt"),
            prometheus_timeout_seconds=30,
            slow_loop_interval_seconds=2,
        )
    )
    connection = source._connection
    source.close()
    assert connection.headers == {"X-Scope-OrgID": "team-a", "X-Other": "a=b"}
    assert (connection.url, connection.bearer_token_file, connection.ca_file) == (
        "http://127.0.0.1:1/prefix",
        Path("/token"),
        Path("/ca.crt"),
    )
    assert (connection.timeout_seconds, connection.shared_seconds) == (2, 1)


async def test_who_does_not_lead_pushes_nothing(loop_of):
    pusher = loop_of().pusher
    target = Target(backend_uid="u", pod_uid="p", address="127.0.0.1", port=1)
    assert await pusher.push(target, None, ttl_seconds=60) is PushResult.NOT_LEADING


async def test_a_loop_that_is_closed_lets_go_of_everything():
    loop = SlowLoop(
        settings(prometheus_url="http://127.0.0.1:1"),
        KEY,
        may_push=lambda: True,
        epoch=lambda: 0,
        changed=lambda _key: None,
    )
    target = FleetTarget(
        uid="u",
        engine=EngineType.VLLM,
        admission=AdmissionPolicy(),
        policy=None,
        replicas=(Replica("a", "p", "127.0.0.1", ready=True),),
    )
    loop.fleet.observe(Key("team", "chat"), target)
    await asyncio.sleep(0)
    await loop.close()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("fleet of")] == []
    assert loop._session.closed
    with pytest.raises(RuntimeError, match="shutdown"):
        await loop._prometheus.read(Subject(namespace="n", engine=EngineType.VLLM, replicas=target.replicas))


VIEW = FleetView(
    rate=Rate(per_second=2.5, before=5.0),
    rule=Rule.HOLD,
    limited_by=Rule.OVERLOAD,
    pressure=Pressure(1.5, "waiting", 3.0, 2.0),
    origin=SignalOrigin.DIRECT,
    limit_per_replica=8,
    prometheus="",
    answers=True,
    reached=1,
    ready=1,
    ages={"waiting": 2.0, "kv_cache_percent": 4.0},
)


def shown(metrics):
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def test_a_replica_that_stands_by_shows_nothing_of_backends():
    assert "backend=" not in shown(FleetMetrics())


async def test_the_loop_is_shown(loop_of, monkeypatch):
    loop, metrics = loop_of(), FleetMetrics()
    metrics.fleet, metrics.pusher = loop.fleet, loop.pusher
    monkeypatch.setattr(loop.fleet, "views", lambda: {Key("team", "chat"): VIEW})
    loop.fleet.rounds.update({Rule.HOLD: 3, Rule.OVERLOAD: 1})
    loop.pusher.results[PushResult.APPLIED] = 7
    loop.pusher.raised = 2
    text = shown(metrics)
    names = 'backend="chat",namespace="team"'
    for line in (
        f"penstock_backend_admission_rate_per_second{{{names}}} 2.5",
        f"penstock_backend_admission_rate_binds{{{names}}} 1.0",
        f'penstock_pressure{{{names},signal="waiting"}} 1.5',
        f'penstock_signal_age_seconds{{{names},signal="waiting"}} 2.0',
        f'penstock_signal_age_seconds{{{names},signal="kv_cache_percent"}} 4.0',
        f'penstock_signal_source{{{names},source="Direct"}} 1.0',
        f'penstock_signal_source{{{names},source="Stale"}} 0.0',
        'penstock_slow_loop_rounds_total{rule="hold"} 3.0',
        'penstock_slow_loop_rounds_total{rule="severe"} 0.0',
        'penstock_pushes_sent_total{result="applied"} 7.0',
        'penstock_pushes_sent_total{result="late"} 0.0',
        "penstock_push_epoch_raised_total 2.0",
    ):
        assert line in text.splitlines()
