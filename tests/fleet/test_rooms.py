"""Who waits for whom when replicas are asked: silent ones for each other, and nobody for them."""

import asyncio

import pytest

from penstock.fleet import rooms as module
from penstock.fleet.rooms import LATE_PLACES, PLACES, Rooms

pytestmark = pytest.mark.looptime


class Fleet:
    """Replicas that are asked, of which some are silent."""

    def __init__(self):
        self.rooms = Rooms(timeout_seconds=1.0)
        self.silent = set()
        self.at_once = self.most_at_once = 0

    async def ask(self, uid):
        try:
            return await self.rooms.ask(uid, lambda: self.answer(uid))
        except TimeoutError:
            return None

    async def answer(self, uid):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(60.0 if uid in self.silent else 0.001)
        finally:
            self.at_once -= 1
        return uid


async def seconds_of(work):
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work
    return loop.time() - began


async def test_as_many_are_asked_at_the_same_time_as_there_are_places():
    fleet = Fleet()
    assert await asyncio.gather(*(fleet.ask(f"p{n}") for n in range(300))) == [f"p{n}" for n in range(300)]
    assert fleet.most_at_once == PLACES


async def test_silent_replicas_hold_up_nobody_else():
    fleet = Fleet()
    fleet.silent = {f"s{n}" for n in range(300)}
    await asyncio.gather(*map(fleet.ask, fleet.silent))
    fleet.most_at_once = 0
    again = asyncio.gather(*map(fleet.ask, fleet.silent))
    await asyncio.sleep(0.1)
    assert await seconds_of(fleet.ask("healthy")) < 0.1
    assert await seconds_of(again) < 2.1, "one that finds no place is not waited for"
    assert fleet.most_at_once == LATE_PLACES + 1


@pytest.mark.parametrize("refuses", [False, True], ids=["answers", "refuses"])
async def test_one_that_is_quick_again_is_asked_among_all(refuses):
    fleet = Fleet()
    fleet.silent = {f"s{n}" for n in range(20)}
    await asyncio.gather(*map(fleet.ask, fleet.silent))

    async def refuse():
        raise ConnectionRefusedError

    if refuses:
        with pytest.raises(ConnectionRefusedError):
            await fleet.rooms.ask("s0", refuse)
    fleet.silent.remove("s0")
    assert await fleet.ask("s0") == "s0"
    crowd = asyncio.gather(*map(fleet.ask, fleet.silent))
    await asyncio.sleep(0.1)
    assert await seconds_of(fleet.ask("s0")) < 0.1
    await crowd


async def test_what_is_remembered_is_bounded_and_forgotten(monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED_REPLICAS", 3)
    fleet = Fleet()
    fleet.silent = {f"s{n}" for n in range(5)}
    for uid in sorted(fleet.silent):
        await fleet.ask(uid)
    assert list(fleet.rooms._late) == ["s2", "s3", "s4"]
    fleet.rooms.forget("s3")
    fleet.rooms.forget("never seen")
    assert list(fleet.rooms._late) == ["s2", "s4"]
