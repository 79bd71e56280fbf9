"""Dials: opened, failed or cancelled, and each of these once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.limiter.dial import Dial
from penstock.limiter.loop import running_loop

PATIENCE_SECONDS = 10.0


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Caller:
    """Notes what becomes of a dial."""

    def __init__(self, address: tuple[str, int], *, seconds: float = PATIENCE_SECONDS) -> None:
        self.socks: list[socket.socket] = []
        self.errors: list[OSError] = []
        self.decided = asyncio.Event()
        self.dial = Dial(running_loop(), address, seconds=seconds, opened=self._opened, failed=self._failed)

    def _opened(self, sock: socket.socket) -> None:
        self.socks.append(sock)
        self.decided.set()

    def _failed(self, error: OSError) -> None:
        self.errors.append(error)
        self.decided.set()

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.decided.wait()
        await asyncio.sleep(0.01)


@pytest.fixture
def full() -> Iterator[socket.socket]:
    """A listening socket that takes no more connections until somebody accepts one."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        yield listener


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["IPv4", "IPv6"])
async def test_a_server_on_the_same_host_is_reached_at_once(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        caller = Caller((host, listener.getsockname()[1]))
        assert caller.decided.is_set()
        caller.dial.cancel()
        await asyncio.sleep(0.01)
        (sock,) = caller.socks
        with sock, listener.accept()[0] as peer:
            sock.send(b"x")
            assert peer.recv(10) == b"x"
            assert sock.gettimeout() == 0.0


async def test_a_refused_connection_has_failed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    caller = Caller(address)
    await caller.wait()
    assert [type(error) for error in caller.errors] == [ConnectionRefusedError]


async def test_a_server_that_is_slow_to_accept_is_reached_in_the_end(full: socket.socket) -> None:
    caller = Caller(full.getsockname())
    assert not caller.decided.is_set()
    full.accept()[0].close()
    await caller.wait()
    assert (len(caller.socks), caller.errors) == (1, [])
    caller.socks[0].close()


async def test_a_server_that_never_accepts_is_given_up(full: socket.socket) -> None:
    before = open_files()
    caller = Caller(full.getsockname(), seconds=0.05)
    await caller.wait()
    assert [type(error) for error in caller.errors] == [TimeoutError]
    assert (caller.socks, open_files()) == ([], before)


async def test_a_cancelled_dial_says_nothing_and_leaves_nothing(full: socket.socket) -> None:
    before = open_files()
    caller = Caller(full.getsockname(), seconds=0.05)
    caller.dial.cancel()
    caller.dial.cancel()
    await asyncio.sleep(0.2)
    assert (caller.socks, caller.errors, open_files()) == ([], [], before)


async def test_an_address_that_cannot_be_reached_has_failed() -> None:
    caller = Caller(("255.255.255.255", 9))
    await caller.wait()
    assert len(caller.errors) == 1
