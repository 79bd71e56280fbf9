"""What the kernel does for a connection and knows about it, and no transport tells.

A peer that closed its connection and one that only stopped sending look the same: end of file. They differ once
something was sent: the first answers with a reset, which the kernel notes in the connection's state. Where there is
nothing to send, the kernel asks in its own way (`ask_when_silent`). A peer that only stopped sending answers. One that
closed answers as well, for as long as its kernel waits for our end (a minute on Linux), and then resets; one that
vanished does not answer at all.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct

READ_BUFFER_BYTES = 64 * 1024
QUESTIONS = 3

_TCP_ESTABLISHED = 1
_TCP_CLOSE = 7
_DEAD_AFTER_RETRANSMISSIONS = 2
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def is_quiet(file_number: int) -> bool:
    """Return whether a connection is open in both directions and nothing has come that was not read yet."""
    watcher = select.poll()
    watcher.register(file_number, select.POLLIN | select.POLLRDHUP)
    return not watcher.poll(0)


def is_reset(transport: asyncio.Transport) -> bool:
    """Return whether the peer answered with a reset, although the transport has not noticed yet."""
    if transport.is_closing():
        return True
    info: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return info[0] == _TCP_CLOSE


def is_dead(transport: asyncio.Transport) -> bool:
    """Return whether the peer has ended its side, or does not answer what is sent again and again."""
    if transport.is_closing():
        return True
    info: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 3)
    return info[0] != _TCP_ESTABLISHED or info[2] >= _DEAD_AFTER_RETRANSMISSIONS


def prepare(sock: socket.socket) -> None:
    """Send small pieces at once, and bound what the kernel holds for us; accepted sockets inherit this."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BUFFER_BYTES)


def ask_when_silent(sock: socket.socket, seconds: int) -> None:
    """Let the kernel ask the peer of a silent connection whether it is still there; accepted sockets inherit this.

    Args:
        sock: A listening socket.
        seconds: Of silence before it asks, and between questions. After `QUESTIONS` without an answer, or at a reset,
            the connection ends with an error.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, QUESTIONS)


def reset(transport: asyncio.Transport) -> None:
    """End the connection with a reset, where an orderly end would look like a complete response."""
    if not transport.is_closing():
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
