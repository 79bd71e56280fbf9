"""The loads, and one run of one: start the Go program, follow its lines, return what it saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.relay import binaries
from bench.relay.processes import BenchError, Pinned

# Beyond this lateness of the load itself (99 % of events or requests are less late) its figures mean nothing.
MAXIMUM_LAG_MS = 10.0
# Events that must have come in the measured time, of those that were due.
MINIMUM_DELIVERED = 0.97
GRACE_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Load:
    """Streams at any time, each a request for a number of events at an interval."""

    name: str
    streams: int
    chunks: int
    every_ms: int
    warmup_ms: int
    measure_ms: int
    aligned: bool = False

    @property
    def due_events(self) -> float:
        """Events that are due in the measured time."""
        return self.streams * self.measure_ms / self.every_ms


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the load saw of one run. Times are milliseconds; events are those of the measured time."""

    events: int
    complete: int
    refused: int
    short: int
    corrupt: int
    reasons: tuple[str, ...]
    first_byte_p50_ms: float
    first_byte_p99_ms: float
    delay_p50_ms: float
    delay_p99_ms: float
    lag_p99_ms: float

    @property
    def lost(self) -> int:
        """Streams that did not bring every byte."""
        return self.refused + self.short + self.corrupt

    def problem(self, load: Load) -> str | None:
        """Return why the figures of this run mean nothing, if they do not: the load was not the load it claims."""
        if self.lag_p99_ms > MAXIMUM_LAG_MS:
            return f"the load itself was {self.lag_p99_ms:.1f} ms late (p99); the machine is busy with other things"
        if not self.lost and self.events < MINIMUM_DELIVERED * load.due_events:
            return f"{self.events} events came in the measured time instead of {load.due_events:.0f}"
        return None


def run(
    load: Load,
    *,
    target_port: int,
    nonce: str,
    core: int,
    folder: Path,
    at_edge: Callable[[str], None],
) -> Seen:
    """Put the load on a port and return what it saw.

    Args:
        load: The load.
        target_port: Port of 127.0.0.1, of a proxy or of the backend.
        nonce: Nonce of the backend that must answer.
        core: Core of the load.
        folder: Where its log goes.
        at_edge: Called with `begin` and `end` at the edges of the measured time.
    """
    argv = [
        binaries.relaybench(),
        *("load", "-target", f"127.0.0.1:{target_port}", "-nonce", nonce),
        *("-streams", str(load.streams), "-chunks", str(load.chunks), "-every", f"{load.every_ms}ms"),
        *(
            "-warmup",
            f"{load.warmup_ms}ms",
            "-measure",
            f"{load.measure_ms}ms",
            f"-aligned={str(load.aligned).lower()}",
        ),
    ]
    events = 0
    result: dict[str, Any] | None = None
    with Pinned("load", argv, core=core, folder=folder, capture=True) as process:
        for line in process.output:
            message = json.loads(line)
            match message["event"]:
                case "begin":
                    at_edge("begin")
                case "end":
                    at_edge("end")
                    events = message["events"]
                case "result":
                    result = message
        process.wait(GRACE_SECONDS)
        if result is None:
            raise BenchError(f"the load ended without a result:\n{process.log_tail()}")
    return parse(result, events=events)


def parse(result: dict[str, Any], *, events: int) -> Seen:
    """Return the last line of the load program as an object."""
    return Seen(
        events=events,
        complete=result["complete"],
        refused=result["refused"],
        short=result["short"],
        corrupt=result["corrupt"],
        reasons=tuple(result["reasons"] or ()),
        first_byte_p50_ms=result["first_byte_p50_ms"],
        first_byte_p99_ms=result["first_byte_p99_ms"],
        delay_p50_ms=result["delay_p50_ms"],
        delay_p99_ms=result["delay_p99_ms"],
        lag_p99_ms=max(result["start_late_p99_ms"], result["tick_late_p99_ms"]),
    )
