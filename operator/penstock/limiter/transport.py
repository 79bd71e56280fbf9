"""A stream transport on the limiter's loop: asyncio's contract, without a turn of asyncio's loop per event.

Theory of operation. A socket is watched for what is wanted of it: for reading unless that is paused or over, for
writing only while bytes wait. When nothing is wanted it is not watched at all, because epoll reports a broken
connection whatever it was asked for, and would do so without end. What an event says is never relied on: `recv` and
`send` find out.

What arrives goes to `receive`, which is the protocol's `data_received` until somebody puts another callable there. What
is written is sent at once by `_send`, which is the socket's own until bytes wait or nothing may be sent any more; then
another callable is in its place, so that a write never asks how the transport is.

For the many small pieces of a stream even this is a detour: they go from socket to socket on a lane (`selector`). So
somebody else may write to a transport's socket, as long as no bytes wait there (`feed_by`).

The protocol is told of the end once, in a later turn of the loop, and the socket is closed after that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from penstock.limiter.loop import Loop
from penstock.limiter.selector import READ_BYTES, READABLE, WRITABLE
from penstock.limiter.unsent import Data, Unsent

HIGH_WATER_BYTES = 64 * 1024


class Feeder(Protocol):
    """Writes to a transport's socket itself."""

    def halt(self) -> None:
        """Write nothing more to the socket: bytes have to wait, or it has ended."""


class Transport(asyncio.Transport):
    """One connected, non-blocking stream socket.

    Attributes:
        number: Of the socket's descriptor.
        receive: Gets every read; may be replaced at any time.
    """

    __slots__ = (
        "_closing", "_eof_written", "_feeder", "_high", "_input_ended", "_loop", "_lost", "_low", "_protocol",
        "_reading", "_send", "_sock", "_stalled", "_unsent", "_watched", "number", "receive",
    )  # fmt: skip

    receive: Callable[[bytes], object]

    def __init__(self, loop: Loop, sock: socket.socket, protocol: asyncio.Protocol) -> None:
        """Take over a socket. The protocol's `connection_made` is called at once, then reading begins."""
        super().__init__()
        self._loop = loop
        self._sock = sock
        self.number = sock.fileno()
        self._send: Callable[[Data], int] = sock.send
        self._feeder: Feeder | None = None
        self._unsent = Unsent()
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._watched = 0
        self._reading = True
        self._stalled = self._input_ended = self._eof_written = self._closing = self._lost = False
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._watch()

    # ---- reading

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`; harmless when repeated."""
        self._reading = False
        self._watch()

    def resume_reading(self) -> None:
        """Read on; harmless when repeated."""
        self._reading = not self._closing
        self._watch()

    def is_reading(self) -> bool:
        """Return whether it is neither paused nor closing."""
        return self._reading

    def cannot_read(self, error: OSError) -> None:
        """Reading raised an error, perhaps only because there was nothing yet."""
        if not isinstance(error, BlockingIOError):
            self._end(error)

    def input_ended(self) -> None:
        """Reading returned nothing: the peer sends no more."""
        self._input_ended = True
        if self._protocol.eof_received():
            self._watch()
        else:
            self.close()

    def failed(self, error: Exception) -> None:
        """What was called with a read raised: a defect ends its own connection and no other."""
        message = "a protocol failed; its connection is closed"
        self._loop.call_exception_handler({"message": message, "exception": error, "protocol": self._protocol})
        self._end(error)

    def _readable(self, _events: int) -> None:
        receive = self.receive  # calling a slot itself takes the slow way through its descriptor
        try:
            data = self._sock.recv(READ_BYTES)
        except OSError as error:
            self.cannot_read(error)
            return
        try:
            if data:
                receive(data)
            else:
                self.input_ended()
        except Exception as error:
            self.failed(error)

    # ---- writing

    def write(self, data: Data) -> None:
        """Send now, or as soon as the peer takes it.

        Raises:
            RuntimeError: after `write_eof`.
        """
        send = self._send
        try:
            sent = send(data)
        except OSError as error:
            self.cannot_send(error, data)
        else:
            if sent != len(data):
                self.keep(memoryview(data)[sent:])

    def feed_by(self, feeder: Feeder | None) -> int:
        """Let somebody write to the socket itself, until told to `halt`; None: nobody any more.

        Returns:
            The socket's number, or -1 when that is not possible now.
        """
        free = not (self._unsent or self._closing or self._eof_written)
        self._feeder = feeder if free else None
        return self.number if free else -1

    def cannot_send(self, error: OSError, data: Data) -> None:
        """Writing raised an error, perhaps only because the peer's buffer is full: then the data waits."""
        if isinstance(error, BlockingIOError):
            self.keep(data)
        else:
            self._end(error)

    def keep(self, data: Data) -> int:
        """Send later, because writing took less than all; also takes the place of `_send` while bytes wait."""
        if not data or self._lost:  # `pause_writing` may have ended it between two pieces
            return len(data)
        if not self._unsent:
            self._send = self.keep
            self._halt()
        self._unsent.add(data)
        self._watch()
        if self._unsent.size > self._high and not self._stalled:
            self._stalled = True
            self._protocol.pause_writing()
        return len(data)

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """Send many pieces with few system calls; see `write`."""
        if self._eof_written:
            _refuse(b"")
        if not self._closing:
            for piece in list_of_data:
                self.keep(piece)
            self._flush()

    def write_eof(self) -> None:
        """Tell the peer that nothing more comes, once everything is sent."""
        if self._eof_written or self._closing:
            return
        self._eof_written = True
        self._send = _refuse
        self._halt()
        if not self._unsent:
            self._shut_down()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many bytes may wait before `pause_writing`, and at how few `resume_writing` is called."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return (low, high)."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self._unsent.size

    def _flush(self) -> None:
        unsent = self._unsent
        if not unsent:
            return
        try:
            unsent.send_by(self._sock)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        if not unsent:
            self._all_is_sent()
        if self._stalled and unsent.size <= self._low:
            self._stalled = False
            if not self._lost:
                self._protocol.resume_writing()

    def _all_is_sent(self) -> None:
        if self._closing:
            self._end(None)
            return
        if self._eof_written:
            self._shut_down()
        else:
            self._send = self._sock.send
        self._watch()

    def _shut_down(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error)

    # ---- the end

    def is_closing(self) -> bool:
        """Return whether it is closed or on its way to be."""
        return self._closing

    def close(self) -> None:
        """Read no more, and end when everything is sent."""
        if self._closing:
            return
        self._closing = True
        self._reading = False
        if self._unsent:
            self._send = len  # takes everything, sends nothing
            self._watch()
        else:
            self._end(None)

    def abort(self) -> None:
        """End now; what waits to be sent is lost."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._reading = False
        self._send = len
        self._halt()
        self._unsent.clear()
        self._watch()
        self._loop.direct.close_lane(self.number)
        self._loop.call_soon(self._tell, error)

    def _tell(self, error: Exception | None) -> None:
        protocol = self._protocol
        self.set_protocol(_NOBODY)  # no circle of references is left behind
        try:
            protocol.connection_lost(error)
        finally:
            self._sock.close()

    # ---- what it is

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol, an `asyncio.Protocol`."""
        assert isinstance(protocol, asyncio.Protocol)  # noqa: S101 - buffered protocols are not served here
        self._protocol = protocol
        self.receive = protocol.data_received

    def get_protocol(self) -> asyncio.Protocol:
        """Return the protocol."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as in asyncio
        """Return the `socket`, or its `peername` or `sockname` if the kernel still knows it."""
        if name == "socket":
            return self._sock
        read = {"peername": self._sock.getpeername, "sockname": self._sock.getsockname}.get(name)
        try:
            return default if read is None else read()
        except OSError:
            return default

    def _watch(self) -> None:
        """Bring what is watched in line with what is wanted."""
        wanted = READABLE if self._reading and not self._input_ended else 0
        if self._unsent:
            wanted |= WRITABLE
        if wanted == self._watched:
            return
        self._watched = wanted
        number = self.number
        if wanted:
            self._loop.direct.watch(number, wanted, self._readable if wanted == READABLE else self._ready)
        else:
            self._loop.direct.unwatch(number)

    def _halt(self) -> None:
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            feeder.halt()

    def _ready(self, events: int) -> None:
        """Take an event while bytes wait to be sent."""
        if events & ~READABLE:
            try:
                self._flush()
            except Exception as error:
                self.failed(error)
        if events & ~WRITABLE and self._watched & READABLE:
            self._readable(events)


_NOBODY = asyncio.Protocol()


def _refuse(_data: Data) -> NoReturn:
    raise RuntimeError("nothing can be written after write_eof")
