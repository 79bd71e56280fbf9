"""Permits of llama.cpp: a slot is free when the server shows it, not when the client has left."""

from __future__ import annotations

import asyncio

import pytest

from penstock.api.engine import EngineType
from penstock.limiter import lingering as module

LLAMA = {"engine_type": EngineType.LLAMA_CPP, "max_concurrency": 2}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(module, "NEXT_LOOK_SECONDS", 0.1)


class Slots:
    """The metrics of a server with slots."""

    def __init__(self, rig) -> None:
        self._rig = rig
        self.show(0)

    def show(self, busy: int | None) -> None:
        text = b"series 1\n" if busy is None else b"# TYPE x gauge\nllamacpp:requests_processing %d\n" % busy
        self._rig.engine.metrics = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def in_flight(rig) -> int:
    return rig.limiter.admission.gate.in_flight


async def leave_two(rig, slots: Slots):
    """Two clients whose requests are at the engine leave."""
    held = rig.hold()
    clients = [await rig.begin() for _ in range(2)]
    await rig.until(lambda: len(held.calls) == 2)
    slots.show(2)
    for client in clients:
        client.reset()
    await rig.until(lambda: len(rig.limiter.admission.lingering) == 2)
    return held


async def test_a_slot_that_is_not_free_is_given_to_nobody(open_rig) -> None:
    async with open_rig(settings_of=LLAMA) as rig:
        slots = Slots(rig)
        held = await leave_two(rig, slots)
        waiting = [await rig.queue(b"{ }"), await rig.queue(b"{  }")]
        await asyncio.sleep(0.4)
        assert (len(held.calls), in_flight(rig)) == (2, 2)
        slots.show(1)
        await rig.until(lambda: len(held.calls) == 3)
        slots.show(2)
        await asyncio.sleep(0.4)
        assert len(held.calls) == 3
        slots.show(1)  # the one that has its client is at work now, the other has been let go
        await rig.until(lambda: len(held.calls) == 4)
        held.answer(2)
        held.answer(3)
        assert [(await client.reply()).status for client in waiting] == [200, 200]
        await rig.settled()
        assert rig.limiter.admission.lingering.given_up == 0


async def test_metrics_that_were_asked_for_before_the_client_left_free_nothing(open_rig) -> None:
    async with open_rig(settings_of=LLAMA) as rig:
        began = asyncio.get_running_loop().time()
        await leave_two(rig, Slots(rig))
        lingering = rig.limiter.admission.lingering
        lingering.seen(b"llamacpp:requests_processing 0\n", began)
        assert (len(lingering), in_flight(rig)) == (2, 2)
        lingering.seen(b"llamacpp:requests_processing 0\n", asyncio.get_running_loop().time() + 1)
        assert (len(lingering), in_flight(rig)) == (0, 0)


async def test_a_slot_that_shows_taken_is_kept_however_long_that_lasts(
    open_rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_SECONDS", 0.3)
    async with open_rig(settings_of=LLAMA) as rig:
        slots = Slots(rig)
        await leave_two(rig, slots)
        await asyncio.sleep(1.0)
        assert (in_flight(rig), rig.limiter.admission.lingering.given_up) == (2, 0)
        slots.show(0)
        await rig.settled()
        assert rig.limiter.admission.lingering.given_up == 0


async def test_clients_that_leave_one_by_one_do_not_make_the_looks_more_frequent(
    open_rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks after its clients only when it is not asked anything for a while."""
    monkeypatch.setattr(module, "NEXT_LOOK_SECONDS", 60.0)
    async with open_rig(settings_of=LLAMA | {"max_concurrency": 3}) as rig:
        slots = Slots(rig)
        held = rig.hold()
        clients = [await rig.begin() for _ in range(3)]
        await rig.until(lambda: len(held.calls) == 3)
        slots.show(3)
        asked: list[float] = []
        lingering = rig.limiter.admission.lingering
        look_soon = lingering.look_soon
        lingering.look_soon = lambda seconds: (asked.append(seconds), look_soon(seconds))
        for number, client in enumerate(clients, 1):
            client.reset()
            await rig.until(lambda number=number: len(lingering) == number)
        assert asked.count(module.FIRST_LOOK_SECONDS) == 1
        slots.show(0)
        lingering.look_soon(0.0)
        await rig.settled()


async def test_a_slot_of_which_nothing_is_heard_is_given_back_in_the_end_and_counted(
    open_rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_SECONDS", 0.5)
    async with open_rig(settings_of=LLAMA) as rig:
        await leave_two(rig, Slots(rig))
        rig.engine.metrics = b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"
        await rig.settled()
        assert rig.limiter.admission.lingering.given_up == 2
        assert b"penstock_permits_given_up_total 2.0" in rig.limiter.metrics.render()


async def test_a_slot_of_which_nothing_is_heard_any_more_is_given_back_in_the_end_and_counted(
    open_rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News once, then silence: the time counts from the news."""
    async with open_rig(settings_of=LLAMA) as rig:
        await leave_two(rig, Slots(rig))
        rig.engine.metrics = b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"
        monkeypatch.setattr(module, "LONGEST_SECONDS", 0.3)
        lingering = rig.limiter.admission.lingering
        lingering.seen(b"llamacpp:requests_processing 2\n", asyncio.get_running_loop().time())
        assert len(lingering) == 2
        await rig.settled()
        assert lingering.given_up == 2


async def test_an_engine_that_does_not_tell_keeps_no_permit(open_rig) -> None:
    async with open_rig(settings_of=LLAMA) as rig:
        slots = Slots(rig)
        held = rig.hold()
        client = await rig.begin()
        await rig.until(lambda: len(held.calls) == 1)
        slots.show(None)
        client.reset()
        await rig.settled()
        assert rig.limiter.admission.lingering.given_up == 0


async def test_an_engine_that_ends_frees_all(open_rig) -> None:
    async with open_rig(settings_of=LLAMA) as rig:
        await leave_two(rig, Slots(rig))
        await rig.engine.stop()
        await rig.settled()
        assert rig.limiter.admission.lingering.given_up == 0


async def test_vllm_has_no_slots_to_wait_for(open_rig) -> None:
    async with open_rig() as rig:
        assert rig.limiter.admission.lingering is None


async def test_a_drain_does_not_wait_for_requests_that_nobody_waits_for(open_rig) -> None:
    """Though their slots are taken: the engine is to stop anyway. One that has a client is waited for."""
    async with open_rig(settings_of=LLAMA | {"max_concurrency": 3}) as rig:
        slots = Slots(rig)
        held = await leave_two(rig, slots)
        slots.show(3)
        client = await rig.begin()
        await rig.until(lambda: len(held.calls) == 3)
        draining = asyncio.create_task(rig.drain())
        await asyncio.sleep(0.3)
        assert not draining.done()
        held.answer(2)
        assert (await client.reply()).status == 200
        async with asyncio.timeout(2.0):  # far below the time for a drain
            assert (await draining).status == 200
        assert in_flight(rig) == 2
