"""The scripts that run inside the shared store: one for a decision, one for the end of a request.

Both begin with the same library, so a decision and its correction count alike. They are sent as they are when a
connection begins, and called by their digest from then on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name that a store knows it by."""

    text: bytes
    digest: bytes


def decide(clock: str | None = None) -> Script:
    """Return the script that checks all quotas and charges all or none; `clock` is Lua that defines another clock."""
    return _script("storedecide.lua", clock)


def settle(clock: str | None = None) -> Script:
    """Return the script that corrects what was charged; see `decide`."""
    return _script("storesettle.lua", clock)


def _script(name: str, clock: str | None) -> Script:
    folder = files("penstock.limiter")
    time = (folder / "storeclock.lua").read_bytes() if clock is None else clock.encode()
    text = b"".join(((folder / "storequota.lua").read_bytes(), time, (folder / name).read_bytes()))
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
