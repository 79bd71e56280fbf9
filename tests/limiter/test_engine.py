"""What looks at the engine add up to."""

from __future__ import annotations

import pytest

from penstock.limiter.engine import ALIVE_GRACE_SECONDS, EngineView, Sight

H, U, G, L = Sight.HEALTHY, Sight.UNHEALTHY, Sight.GONE, Sight.LATE


@pytest.mark.parametrize(
    ("looks", "ready"),
    [
        ([], False),
        ([G, U, H], True),
        ([H, L, L, L], True),
        ([L], False),
        ([H, U], False),
        ([H, G], False),
        ([H, G, L], False),
        ([H, G, H], True),
    ],
    ids=str,
)
def test_readiness_follows_evidence_only(looks: list[Sight], ready: bool) -> None:
    view = EngineView()
    for now, sight in enumerate(looks):
        view.see(sight, now=now)
    assert (view.ready, view.started) == (ready, ready)


@pytest.mark.parametrize(
    ("looks", "alive"),
    [
        ([G, G, G], True),
        ([U, U, U], True),
        ([H, L, L], True),
        ([H, G, G], False),
        ([H, U, U], False),
        ([H, U, L], False),
        ([H, G, H], True),
        ([H, G, H, G], True),
    ],
    ids=str,
)
def test_alive_means_not_failing_for_long_since_it_was_ready(looks: list[Sight], alive: bool) -> None:
    view, now = EngineView(), 0.0
    for sight in looks:
        now += ALIVE_GRACE_SECONDS
        view.see(sight, now=now)
    assert view.alive(now=now) is alive


def test_only_news_are_news() -> None:
    view = EngineView()
    assert [view.see(sight, now=0) for sight in (G, G, H, L, H, G)] == [True, False, True, False, False, True]
