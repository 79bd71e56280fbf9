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


async def test_a_slot_that_never_shows_free_is_given_back_in_the_end_and_counted(
    open_rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_SECONDS", 0.3)
    async with open_rig(settings_of=LLAMA) as rig:
        await leave_two(rig, Slots(rig))
        await rig.settled()
        assert rig.limiter.admission.lingering.given_up == 2
        assert b"penstock_permits_given_up_total 2.0" in rig.limiter.metrics.render()


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
