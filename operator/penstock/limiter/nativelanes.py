"""The lanes of `lanes.c`, as Python sees them.

The library is built with the package (`hatch_build.py`) and lies beside this module. Without it the limiter serves all
the same, at a higher price, and says so (`lanes_on`).
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import cast

from penstock.limiter.lanes import READ_BYTES, Lanes, PythonLanes, Turn

LIBRARY = Path(__file__).with_name("liblanes.so.1")
LAYOUT = 1  # changes with what both sides see, in both files
MARK_LIMIT_BYTES = 64

logger = logging.getLogger(__name__)


class NativeError(Exception):
    """There is no library that can be used; the message says why."""


class _NativeTurn(ctypes.Structure):
    """See `Turn`; and what belongs to `Lanes`."""

    _fields_ = (
        ("until", ctypes.c_double),
        ("bytes", ctypes.c_int64),
        ("returns", ctypes.c_int32),
        ("fresh", ctypes.c_int32),
        ("number", ctypes.c_int32),
        ("events", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("length", ctypes.c_int32),
        ("sent", ctypes.c_int32),
        ("data", ctypes.c_ubyte * READ_BYTES),
    )


class NativeLanes:
    """Lanes on an epoll instance."""

    def __init__(self, epoll: select.epoll) -> None:
        """Begin without lanes.

        Raises:
            NativeError: there is no library, or it is of another version.
        """
        library = _library()
        self._memory = ctypes.create_string_buffer(library.lanes_size())
        self._handle: int = ctypes.addressof(self._memory)
        library.lanes_begin(self._handle, epoll.fileno())
        self._open, self._close, self._end = library.lanes_open, library.lanes_close, library.lanes_end
        self._turn = _NativeTurn.from_buffer(self._memory)
        self._data = memoryview(self._turn.data).cast("B")
        self.turn = cast("Turn", self._turn)
        self.next: Callable[[], int] = functools.partial(library.lanes_next, self._handle)

    def open(self, number: int, target: int, mark: bytes | None) -> None:
        """See `Lanes.open`."""
        if self._open(self._handle, number, target, mark, len(mark or b"")):
            reason = (
                "there is no memory left" if mark is None or len(mark) <= MARK_LIMIT_BYTES else "the mark is too long"
            )
            raise ValueError(f"no lane for descriptor {number}: {reason}")

    def close(self, number: int) -> int:
        """See `Lanes.close`."""
        return int(self._close(self._handle, number))

    def read(self) -> bytes:
        """See `Lanes.read`."""
        return bytes(self._data[: self._turn.length])

    def unwritten(self) -> bytes:
        """See `Lanes.unwritten`."""
        return bytes(self._data[self._turn.sent : self._turn.length])

    def error(self) -> OSError:
        """See `Lanes.error`."""
        return OSError(self._turn.error, os.strerror(self._turn.error))

    def end(self) -> None:
        """See `Lanes.end`."""
        self._end(self._handle)


def lanes_on(epoll: select.epoll) -> Lanes:
    """Return lanes on an epoll instance: native ones where that is possible."""
    try:
        return NativeLanes(epoll)
    except NativeError as error:
        logger.warning("streams are relayed by Python, at a higher price: %s", error)
        return PythonLanes(epoll)


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(LIBRARY))
        layout = library.lanes_layout()
    except (OSError, AttributeError) as error:
        raise NativeError(f"cannot load {LIBRARY.name} ({error})") from None
    if layout != LAYOUT or library.lanes_size() < ctypes.sizeof(_NativeTurn):
        raise NativeError(f"{LIBRARY.name} is of another version; build it again (`make env`)")
    number, handle = ctypes.c_int, ctypes.c_void_p
    library.lanes_size.argtypes, library.lanes_size.restype = (), ctypes.c_size_t
    library.lanes_begin.argtypes, library.lanes_begin.restype = (handle, number), None
    library.lanes_end.argtypes, library.lanes_end.restype = (handle,), None
    library.lanes_open.argtypes = (handle, number, number, ctypes.c_char_p, number)
    library.lanes_close.argtypes, library.lanes_close.restype = (handle, number), ctypes.c_int64
    library.lanes_next.argtypes = (handle,)
    return library
