"""Large uploads while streams run, in a limiter that has its default memory and no more.

The limiter runs in a memory control group of its own where this machine lets one be made, as in a container; else its
resident memory is watched. Uploads are answered 200, or 503 with Retry-After where the memory for bodies is taken; no
stream is cut, and the limiter is not ended by the kernel.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.limiter.bed import Bed, bed
from bench.limiter.client import HOST, READ_LIMIT_BYTES, Connections, Seen, payload, read, request
from bench.relay.processes import BenchError
from bench.results import Row, at_most

MEBIBYTE = 1024 * 1024
MEMORY_BYTES = 256 * MEBIBYTE
UPLOAD_BYTES = 30 * MEBIBYTE
AT_ONCE = 100
WATCH_SECONDS = 0.1
STREAM_EVERY_MS = 100
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")  # cgroup v1
GROUPS = Path("/sys/fs/cgroup")
PIECE_BYTES = 1 << 20
MARK = "<end>"


@dataclass
class Outcome:
    """What a run saw.

    Attributes:
        answers: Uploads by status; 0 for those that ended without one.
        without_hint: Refusals that did not say when to come back.
        streams: How many ran.
        cut: Streams that did not bring every token.
        peak_bytes: The most memory the limiter took, the kernel's share included where that is told.
        limited: Whether the kernel held it to its limit.
        fault: How the limiter ended, if it did.
        seconds: How long the uploads took.
    """

    answers: Counter[int] = field(default_factory=Counter)
    without_hint: int = 0
    streams: int = 0
    cut: int = 0
    peak_bytes: int = 0
    limited: bool = False
    fault: str = ""
    seconds: float = 0.0


def run(
    *, uploads: int, streams: int, upload_bytes: int = UPLOAD_BYTES, at_once: int = AT_ONCE, ends_with: str = ""
) -> Outcome:
    """Send uploads, so many at once, while streams run.

    Args:
        uploads: How many.
        streams: How many.
        upload_bytes: Of each.
        at_once: How many uploads are under way.
        ends_with: The last characters of each; a single one that Python keeps in four bytes makes all of them wide.
    """
    with _memory_group() as group:
        enter = () if group is None else ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        with bed({}, wrapped_by=enter, memory_bytes=MEMORY_BYTES) as where:
            outcome = asyncio.run(_run(where, uploads, streams, _upload_of(upload_bytes, ends_with), at_once))
            outcome.limited = group is not None
            outcome.peak_bytes = max(outcome.peak_bytes, _peak(group))
            outcome.fault = _fault(where)
            return outcome


def _fault(where: Bed) -> str:
    """Return how the limiter ended, if it did."""
    try:
        where.limiter.check_alive()
    except BenchError as error:
        return str(error)
    return ""


def _upload_of(size: int, ends_with: str) -> memoryview:
    body = payload(tokens=1, stream=False, pad="x" * size + MARK)
    return memoryview(request(body.replace(MARK.encode(), ends_with.encode())))


async def _run(where: Bed, uploads: int, streams: int, raw: memoryview, at_once: int) -> Outcome:
    outcome = Outcome(streams=streams)
    ended = asyncio.Event()
    connections = Connections(where.where.port)
    running = [asyncio.create_task(_stream(connections, ended)) for _ in range(streams)]
    watching = asyncio.create_task(_watch(where, outcome, ended))
    turn = asyncio.Semaphore(at_once)
    began = time.monotonic()

    async def one() -> None:
        async with turn:
            seen = await _upload(where.where.port, raw)
        outcome.answers[seen.status] += 1
        outcome.without_hint += seen.status == 503 and "retry-after" not in seen.headers

    await asyncio.gather(*(one() for _ in range(uploads)))
    outcome.seconds = time.monotonic() - began
    ended.set()
    outcome.cut = sum(await asyncio.gather(*running))
    await watching
    connections.close()
    return outcome


async def _stream(connections: Connections, ended: asyncio.Event) -> int:
    """Keep one stream after the other open until it is over; return how many were cut."""
    cut = 0
    while not ended.is_set():
        seen = await connections.ask(request(payload(tokens=30, every_ms=STREAM_EVERY_MS)))
        cut += seen.status != 200 or not seen.whole or seen.tokens != 30 or bool(seen.body)
    return cut


async def _upload(port: int, raw: memoryview) -> Seen:
    """Send as SDKs do: stop when an answer comes first."""
    seen = Seen()
    try:
        reader, writer = await asyncio.open_connection(HOST, port, limit=READ_LIMIT_BYTES)
    except OSError:
        return seen
    reading = asyncio.create_task(read(reader, seen, time.monotonic()))
    try:
        for begin in range(0, len(raw), PIECE_BYTES):
            if reading.done():
                break
            writer.write(raw[begin : begin + PIECE_BYTES])
            await writer.drain()
    except OSError:
        pass
    with suppress(OSError, asyncio.IncompleteReadError):
        await reading
    writer.transport.abort()
    return seen


async def _watch(where: Bed, outcome: Outcome, ended: asyncio.Event) -> None:
    while not ended.is_set():
        with suppress(OSError, StopIteration):
            outcome.peak_bytes = max(outcome.peak_bytes, where.limiter.resident_bytes())
        await asyncio.sleep(WATCH_SECONDS)


@contextmanager
def _memory_group() -> Iterator[Path | None]:
    """Make a control group with the limiter's memory limit; None where that is not possible."""
    if (MEMORY_GROUPS / "memory.limit_in_bytes").exists():
        parent, file = MEMORY_GROUPS, "memory.limit_in_bytes"
    else:
        parent, file = GROUPS, "memory.max"
    group = parent / f"penstock-uploads-{os.getpid()}"
    try:
        group.mkdir()
        (group / file).write_text(str(MEMORY_BYTES))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def _peak(group: Path | None) -> int:
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        with suppress(OSError, ValueError):
            return int((group / name).read_text()) if group else 0
    return 0


def rows(outcome: Outcome) -> list[Row]:
    """Return the promises about uploads."""
    uploads = sum(outcome.answers.values())
    strange = uploads - outcome.answers[200] - outcome.answers[503]
    return [
        at_most("streams cut during uploads", outcome.cut, "", limit=0, bar="none"),
        at_most("uploads answered otherwise than 200 or 503", strange, "", limit=0, bar="none"),
        at_most("uploads refused without Retry-After", outcome.without_hint, "", limit=0, bar="none"),
        at_most("limiters ended during uploads", int(bool(outcome.fault)), "", limit=0, bar="none"),
        at_most(
            "peak memory during uploads",
            outcome.peak_bytes / MEBIBYTE,
            "MiB",
            limit=MEMORY_BYTES / MEBIBYTE,
            bar="256 MiB, the default limit",
        ),
        Row(name="uploads answered 200", value=outcome.answers[200], unit=""),
        Row(name="uploads answered 503", value=outcome.answers[503], unit=""),
        Row(name="time of all uploads", value=outcome.seconds, unit="s"),
        Row(name="memory limit enforced by the kernel", value=int(outcome.limited), unit="1 = yes"),
    ]
