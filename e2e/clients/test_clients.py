"""Every client in every scene surfaces what the table says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.clients.client import Client, Seen
from e2e.clients.scenes import SCENES, Scene
from e2e.clients.stage import Play, Replicas, Stage
from e2e.clients.table import CLIENTS, TABLE, Outcome, Waits

BACKOFF_SECONDS = (0.375, 0.5)
CURL_BACKOFF_SECONDS = 1.0
CLOCK_SECONDS = 0.02
"""A pause on the wire may look this much shorter than it was: both ends are noted a little late."""


def test_the_table_has_all_scenes_and_all_clients() -> None:
    assert list(TABLE) == [scene.__name__ for scene in SCENES]
    assert all(set(row) == set(CLIENTS) for row in TABLE.values())


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_it_surfaces_what_the_table_says(
    client_named: Callable[[str], Client],
    replicas: Replicas,
    note: Callable[[str, str, Outcome, list[float]], None],
    name: str,
    scene: Scene,
) -> None:
    client, expected = client_named(name), TABLE[scene.__name__][name]
    play = scene(Stage(client, replicas, scene.__name__))
    seen, tries = play.seen, len(play.tries) or 1
    finish = seen.finish if expected.finish is not None else None
    found = Outcome(seen.raised, seen.status, _text(seen.code), seen.kind, tries, expected.waits, finish)
    note(scene.__name__, name, found, play.pauses)
    assert found == expected
    check_waits(expected.waits, play)
    if client.sdk:
        check_what_sdks_send(play)


def check_waits(waits: Waits, play: Play) -> None:
    """See that a client waited before each further try as long as it should."""
    seen, again = play.seen, play.tries[:-1]
    if waits is Waits.NONE:
        assert not again
    elif waits is Waits.TOLD:
        assert seen.sleeps == tuple(one.told_seconds for one in again)
        check_pauses(play, seen.sleeps)
    elif waits is Waits.BACKOFF:
        check_backoff(seen)
        assert len(seen.sleeps) == len(again)
        check_pauses(play, seen.sleeps)
    elif waits is Waits.TOLD_WHOLE_SECONDS:
        told = [one.told_whole_seconds for one in again]
        check_pauses(play, [seconds for seconds in told if seconds is not None])
    else:
        check_pauses(play, [CURL_BACKOFF_SECONDS * 2**number for number in range(len(again))])


def check_backoff(seen: Seen) -> None:
    """See that an SDK's own waits double."""
    low, high = BACKOFF_SECONDS
    for number, seconds in enumerate(seen.sleeps):
        assert low * 2**number <= seconds <= high * 2**number


def check_pauses(play: Play, least_seconds: list[float] | tuple[float, ...]) -> None:
    """See that the next try did not come earlier than it should."""
    assert len(play.pauses) == len(least_seconds)
    for pause, least in zip(play.pauses, least_seconds, strict=True):
        assert pause >= least - CLOCK_SECONDS


def check_what_sdks_send(play: Play) -> None:
    """See that each try says which one it is and how long its client waits: the limiter relies on both."""
    for number, one in enumerate(play.tries):
        assert one.headers["x-stainless-retry-count"] == str(number)
        assert float(one.headers["x-stainless-read-timeout"]) > 0


def _text(code: str | int | None) -> str | None:
    """Return a code as text: vLLM's are numbers, which openai turns into text and others leave."""
    return None if code is None else str(code)
