"""Switches that make the server misbehave, one dataclass per request to do so.

A fault is switched on by `POST /fault` or, from the start, by the variable `FAKEVLLM_FAULTS` (a JSON list of the same
objects), and off by `DELETE /fault`. `times` counts the requests it still hits; without it, it stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What goes wrong."""

    HANG = "hang"  # the engine takes no more steps; /health goes on saying 200
    DIE = "die"  # the engine is dead: 500, /health 503, and the process exits with 0 soon after
    SLOW_START = "slow-start"  # the port refuses connections for `seconds` more
    SLOW_TOKENS = "slow-tokens"  # every step takes `seconds` longer
    REFUSE = "refuse"  # the port is closed for `seconds`, then opened again
    ERROR = "error"  # a request is answered 500
    ABORT = "abort"  # an answer ends after `tokens` tokens with finish_reason "abort"
    CUT = "cut"  # the connection is cut after `tokens` tokens
    LOAD = "load"  # the gauges show `waiting` requests and `kv_cache` used, whatever the engine does


KEYS = ("kind", "times", "tokens", "seconds", "waiting", "kv_cache")


class FaultError(ValueError):
    """The description of a fault makes no sense."""


@dataclass(slots=True)
class Fault:
    """One misbehaviour.

    Attributes:
        kind: What goes wrong.
        times: Requests it still hits; None for all.
        tokens: Tokens of the answer sent before it strikes.
        seconds: How long it lasts or how much longer things take.
        waiting: Requests that seem to wait; None shows those that do.
        kv_cache: Share of KV blocks that seems to be in use, 0 to 1; None shows the real one.
    """

    kind: Kind
    times: int | None = None
    tokens: int = 0
    seconds: float = 0.0
    waiting: int | None = None
    kv_cache: float | None = None

    @classmethod
    def parse(cls, description: object) -> Fault:
        """Read `{"kind": ..., "times": ..., "tokens": ..., "seconds": ..., "waiting": ..., "kv_cache": ...}`.

        Raises:
            FaultError: A key or value is unknown; the message names it.
        """
        if not isinstance(description, Mapping):
            raise FaultError("a fault is a JSON object with a kind")
        unknown = set(description) - set(KEYS)
        if unknown:
            raise FaultError(f"a fault has no {', '.join(sorted(unknown))}; it has {', '.join(KEYS)}")
        try:
            kind = Kind(str(description.get("kind")))
        except ValueError:
            raise FaultError(f"kind must be one of {', '.join(Kind)}") from None
        times, tokens, seconds = description.get("times"), description.get("tokens", 0), description.get("seconds", 0.0)
        if not (times is None or (isinstance(times, int) and times > 0)):
            raise FaultError("times must be a whole number above 0, or left out for ever")
        if not (isinstance(tokens, int) and tokens >= 0 and isinstance(seconds, int | float) and seconds >= 0):
            raise FaultError("tokens and seconds must be 0 or more")
        waiting, kv_cache = description.get("waiting"), description.get("kv_cache")
        if not (waiting is None or (isinstance(waiting, int) and waiting >= 0)):
            raise FaultError("waiting must be a whole number, or left out for the real one")
        if not (kv_cache is None or (isinstance(kv_cache, int | float) and 0 <= kv_cache <= 1)):
            raise FaultError("kv_cache must be between 0 and 1, or left out for the real one")
        return cls(kind, times, tokens, float(seconds), waiting, kv_cache)


class Faults:
    """The faults that are switched on, at most one of a kind."""

    def __init__(self, faults: list[Fault] | None = None) -> None:
        self._faults = {fault.kind: fault for fault in faults or []}

    @classmethod
    def from_text(cls, text: str) -> Faults:
        """Read the JSON list of `FAKEVLLM_FAULTS`; empty text means none.

        Raises:
            FaultError: It is not such a list.
        """
        if not text:
            return cls()
        try:
            descriptions = json.loads(text)
        except ValueError as error:
            raise FaultError(f"FAKEVLLM_FAULTS must be a JSON list of faults: {error}") from None
        if not isinstance(descriptions, list):
            raise FaultError("FAKEVLLM_FAULTS must be a JSON list of faults")
        return cls([Fault.parse(description) for description in descriptions])

    def switch_on(self, fault: Fault) -> None:
        """Switch a fault on, in place of one of the same kind."""
        self._faults[fault.kind] = fault

    def clear(self) -> None:
        """Switch everything off."""
        self._faults.clear()

    def get(self, kind: Kind) -> Fault | None:
        """Return the fault of that kind if it is on, without using it up."""
        return self._faults.get(kind)

    def hit(self, kind: Kind) -> Fault | None:
        """Return the fault that hits the request at hand, and count it."""
        fault = self._faults.get(kind)
        if fault is not None and fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                del self._faults[kind]
        return fault
