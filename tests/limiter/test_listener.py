"""Listeners: which addresses they take, and what they do when there is no descriptor left."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.limiter import listener as module
from penstock.limiter.listener import Listener, bind
from penstock.limiter.loop import running_loop

PATIENCE_SECONDS = 5.0


@pytest.fixture
def port() -> int:
    with socket.create_server(("", 0)) as probe:
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def accepted() -> Iterator[list[socket.socket]]:
    """What was accepted; closed in the end."""
    socks: list[socket.socket] = []
    yield socks
    for sock in socks:
        sock.close()


async def until(condition) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - plain state without an event
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("host", [None, "127.0.0.1", "::1"], ids=["all", "IPv4", "IPv6"])
async def test_it_takes_the_connections_of_its_addresses_and_no_others(port: int, accepted, host: str | None) -> None:
    listeners = [Listener(running_loop(), sock, accepted.append) for sock in bind(host, port)]
    taken = []
    for address in ("127.0.0.1", "::1"):
        try:
            with socket.create_connection((address, port), timeout=1):
                taken.append(address)
        except ConnectionRefusedError:
            continue
    assert taken == ([host] if host else ["127.0.0.1", "::1"])
    await until(lambda: len(accepted) == len(taken))
    assert [sock.gettimeout() for sock in accepted] == [0.0] * len(taken)
    for listener in listeners:
        listener.close()
    await asyncio.sleep(0)


async def test_accepted_connections_send_small_pieces_at_once_and_hold_little(port: int, accepted) -> None:
    (sock,) = bind("127.0.0.1", port)
    listener = Listener(running_loop(), sock, accepted.append)
    with socket.create_connection(("127.0.0.1", port)):
        await until(lambda: bool(accepted))
    assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert accepted[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 128 * 1024  # the kernel doubles it
    listener.close()
    await asyncio.sleep(0)


async def test_more_connections_than_fit_a_batch_are_all_taken(port: int, accepted, monkeypatch) -> None:
    monkeypatch.setattr(module, "BATCH_LIMIT", 3)
    (sock,) = bind("127.0.0.1", port)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
    listener = Listener(running_loop(), sock, accepted.append)
    await until(lambda: len(accepted) == len(clients))
    listener.close()
    for client in clients:
        client.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_a_taken_port_is_an_error_and_leaves_no_socket_behind(family: int) -> None:
    with socket.create_server(("", 0), family=family) as other:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(OSError, match="in use"):
            bind(None, other.getsockname()[1])
        assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_without_a_free_descriptor_it_complains_once_rests_and_goes_on(
    port: int, accepted, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.02)
    (sock,) = bind("127.0.0.1", port)
    listener = Listener(running_loop(), sock, accepted.append)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_connection(("127.0.0.1", port)):
        first_free = os.dup(sock.fileno())
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, limits[1]))
        try:
            await asyncio.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert accepted == []
        await until(lambda: len(accepted) == 1)
    assert [record.levelname for record in caplog.records if "accepted" in record.message] == ["ERROR"]
    listener.close()
    await asyncio.sleep(0)


async def test_a_listener_that_rests_can_be_closed(port: int, monkeypatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.02)
    (sock,) = bind("127.0.0.1", port)
    listener = Listener(running_loop(), sock, lambda _: None)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_connection(("127.0.0.1", port)):
        first_free = os.dup(sock.fileno())
        os.close(first_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, limits[1]))
        try:
            await asyncio.sleep(0.01)
            listener.close()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await asyncio.sleep(0.05)
    assert sock.fileno() == -1
