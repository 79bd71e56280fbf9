"""The event loop: handlers run inside its selector, and nothing of asyncio waits for them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from penstock.limiter.loop import Loop, running_loop
from penstock.limiter.selector import READABLE

PATIENCE_SECONDS = 5.0
SOON_SECONDS = 0.05


@pytest.fixture
def pairs() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    """Make pairs of connected sockets, the first of which is readable."""
    made: list[socket.socket] = []

    def make() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        made.extend((ours, theirs))
        theirs.send(b"x")
        return ours, theirs

    yield make
    for sock in made:
        sock.close()


@pytest.fixture
async def busy(pairs) -> AsyncIterator[Loop]:
    """A loop with a socket that is readable at any time, so that the selector never rests."""
    loop = running_loop()
    ours, _ = pairs()
    loop.direct.watch(ours.fileno(), READABLE, lambda _events: None)
    yield loop
    loop.direct.unwatch(ours.fileno())


async def test_timers_are_on_time_beside_a_socket_that_is_always_ready(busy: Loop) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.sleep(SOON_SECONDS)


async def test_tasks_go_on_beside_a_socket_that_is_always_ready(busy: Loop) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(1000):
            await asyncio.sleep(0)


async def wake_from_a_thread() -> None:
    woken = asyncio.Event()
    timer = threading.Timer(SOON_SECONDS, running_loop().call_soon_threadsafe, [woken.set])
    timer.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await woken.wait()
    timer.join()


async def test_a_thread_wakes_an_idle_loop() -> None:
    await wake_from_a_thread()


async def test_a_thread_is_heard_beside_a_socket_that_is_always_ready(busy: Loop) -> None:
    await wake_from_a_thread()


async def test_a_signal_wakes_the_loop() -> None:
    loop, woken = running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, woken.set)
    timer = threading.Timer(SOON_SECONDS, os.kill, [os.getpid(), signal.SIGUSR1])
    timer.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await woken.wait()
    loop.remove_signal_handler(signal.SIGUSR1)
    timer.join()


@pytest.mark.parametrize(
    "begin",
    [
        lambda loop, woken: loop.call_soon(woken.set),
        lambda loop, woken: loop.call_later(SOON_SECONDS, woken.set),
        lambda loop, woken: loop.call_at(loop.time() + SOON_SECONDS, woken.set),
        lambda loop, woken: loop.create_task(asyncio.sleep(SOON_SECONDS)).add_done_callback(lambda _: woken.set()),
    ],
    ids=["call_soon", "call_later", "call_at", "a task"],
)
async def test_what_a_handler_begins_does_not_wait_for_another_event(pairs, begin) -> None:
    loop, woken = running_loop(), asyncio.Event()
    ours, _ = pairs()

    def handle(_events: int) -> None:
        loop.direct.unwatch(ours.fileno())
        begin(loop, woken)

    loop.direct.watch(ours.fileno(), READABLE, handle)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await woken.wait()


async def test_streams_of_asyncio_work_beside_it(busy: Loop) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello")
    assert await reader.read(100) == b"hello"
    writer.close()
    server.close()


async def test_a_handler_that_fails_is_reported_and_keeps_no_other_from_running(pairs) -> None:
    loop, reports, served = running_loop(), [], asyncio.Event()
    loop.set_exception_handler(lambda _, context: reports.append(context["exception"]))
    (first, _), (second, _) = pairs(), pairs()

    def fail(_events: int) -> None:
        loop.direct.unwatch(first.fileno())
        raise ArithmeticError("a defect")

    def serve(_events: int) -> None:
        loop.direct.unwatch(second.fileno())
        served.set()
        loop.call_soon(lambda: None)

    loop.direct.watch(first.fileno(), READABLE, fail)
    loop.direct.watch(second.fileno(), READABLE, serve)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await served.wait()
    assert [type(error) for error in reports] == [ArithmeticError]


async def test_an_event_of_a_closed_descriptor_never_meets_the_next_owner_of_its_number(pairs) -> None:
    """Both are ready in one batch; whoever is served first closes the other and opens a socket in its place."""
    loop, done, calls, reused = running_loop(), asyncio.Event(), [], []
    socks = [pairs()[0] for _ in range(2)]
    numbers = [sock.fileno() for sock in socks]

    def handler_of(index: int) -> Callable[[int], None]:
        def handle(_events: int) -> None:
            calls.append(index)
            loop.direct.unwatch(numbers[index])
            loop.close_later(socks[1 - index])
            ours, _ = pairs()  # readable at once: an event for the number would be served
            reused.append(ours.fileno())
            loop.direct.watch(ours.fileno(), READABLE, lambda _events: finish(ours))

        return handle

    def finish(ours: socket.socket) -> None:
        loop.direct.unwatch(ours.fileno())
        loop.call_soon(done.set)

    for index in range(2):
        loop.direct.watch(numbers[index], READABLE, handler_of(index))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await done.wait()
    assert len(calls) == 1
    assert reused[0] not in numbers


async def test_an_unwatched_descriptor_is_silent_and_can_be_watched_again(pairs) -> None:
    loop, calls, again = running_loop(), [], asyncio.Event()
    ours, _ = pairs()
    loop.direct.watch(ours.fileno(), READABLE, calls.append)
    loop.direct.unwatch(ours.fileno())
    loop.direct.unwatch(ours.fileno())
    await asyncio.sleep(SOON_SECONDS)
    assert calls == []

    def seen(_events: int) -> None:
        loop.direct.unwatch(ours.fileno())
        loop.call_soon(again.set)

    loop.direct.watch(ours.fileno(), READABLE, seen)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await again.wait()


def test_another_kind_of_loop_is_refused() -> None:
    async def ask() -> None:
        running_loop()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner, pytest.raises(RuntimeError, match="loop"):
        runner.run(ask())


def test_a_closed_loop_leaves_no_descriptor_behind() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(asyncio.sleep(0))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
