"""Recorded answers of real engines pass through without a changed byte, wherever the reads are cut."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

RECORDED = {path.stem: path.read_bytes() for path in sorted((Path(__file__).parent / "fixtures").glob("*.http"))}
CUTS = (1, 7, 100, 1_000_000)


def as_sent(recorded: bytes) -> tuple[bytes, bytes]:
    """Recordings hold the payload; return what the engine sent and the payload."""
    head, _, payload = recorded.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return recorded, payload
    events = [event + b"\n\n" for event in payload.removesuffix(b"\n\n").split(b"\n\n")]
    assert b"".join(events) == payload
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    return head + b"\r\n\r\n" + chunks + b"0\r\n\r\n", payload


def test_there_are_recordings() -> None:
    assert len(RECORDED) >= 8


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED.keys())
@pytest.mark.parametrize("cut", CUTS)
async def test_a_recorded_answer_is_relayed_byte_by_byte(rig, recorded: bytes, cut: int) -> None:
    sent, payload = as_sent(recorded)
    step = max(cut, len(sent) // 400)

    async def replay(call) -> None:
        for at in range(0, len(sent), step):
            await call.send(sent[at : at + step])
            await asyncio.sleep(0)

    rig.engine.script = replay
    client = await rig.connect()
    await client.send(rig.post_bytes())
    head = await client.reader.readuntil(b"\r\n\r\n")
    framed = sent.partition(b"\r\n\r\n")[2]
    assert await client.reader.readexactly(len(framed)) == framed
    assert head.split(b"\r\n")[0] == sent.split(b"\r\n")[0]
    assert payload
    await rig.settled()
