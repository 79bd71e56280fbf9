"""Measuring fairly: one backend for the whole run, contenders taking turns, figures from the measured time only.

Within a round every contender meets the same loads within minutes, so what disturbs the machine disturbs all of them,
and ratios are taken inside a round. The order turns from round to round. A run whose load was itself late says nothing
about the proxy: it is repeated, and its times are dropped (its lost streams are not).
"""

from __future__ import annotations

import http.client
import json
import secrets
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.relay import binaries, loads
from bench.relay.contenders import API_KEY, Contender, Place
from bench.relay.loads import Load, Seen
from bench.relay.processes import BenchError, Pinned, free_ports, two_cores
from e2e.cache import say

CHUNKS_PER_FIGURE = 51_200
START_SECONDS = 30.0
PROBE_SECONDS = 0.1
SETTLE_SECONDS = 1.0
MAXIMUM_STARVED = 0.05
SCRAPE_SECONDS = 1.0
SCRAPE_TIMEOUT_SECONDS = 10.0
BYTES_PER_MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One valid run of a load through a contender. CPU and memory of `direct` are None."""

    contender: str
    load: str
    round: int
    seen: Seen
    cpu_seconds: float | None
    starved: float
    """Part of the measured time that the proxy was kept from its core by others."""
    idle_mebibytes: float | None
    loaded_mebibytes: float | None

    def problem(self) -> str | None:
        """Return why the proxy's figures mean nothing, if they do not: what it does late it does in bulk, for less."""
        if self.starved > MAXIMUM_STARVED:
            return f"other programs kept the proxy from its core for {self.starved:.0%} of the time"
        return None


@dataclass
class Carried:
    """How many streams a contender carried, in all attempts of all loads, and what became of the lost ones."""

    streams: int = 0
    lost: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why the first few of each run were lost."""

    def add(self, seen: Seen) -> None:
        """Count what one run saw."""
        self.streams += seen.complete + seen.lost
        self.lost += seen.lost
        self.reasons.extend(seen.reasons)


@dataclass(frozen=True)
class Outcome:
    """Everything a run of the bench brought."""

    measurements: list[Measurement] = field(default_factory=list)
    carried: dict[str, Carried] = field(default_factory=dict)
    """By contender."""
    dropped: list[str] = field(default_factory=list)
    """Runs that brought no times, because the load was late in every attempt."""


@dataclass
class Bench:
    """A backend that runs, and the cores and the folder of this run."""

    folder: Path
    proxy_core: int
    load_core: int
    backend_port: int
    nonce: str

    def measure(self, contender: Contender, load: Load, *, round_number: int, attempts: int, outcome: Outcome) -> None:
        """Run a load through a contender until the load was in time, and note what it brought.

        Raises:
            BenchError: A process ended early or never answered.
        """
        for attempt in range(attempts):
            measurement = self._attempt(contender, load, round_number)
            seen = measurement.seen
            outcome.carried.setdefault(contender.name, Carried()).add(seen)
            problem = seen.problem(load) or measurement.problem()
            if problem is None:
                outcome.measurements.append(measurement)
                return
            say(f"{load.name}, round {round_number}, {contender.name}: times dropped, {problem} (try {attempt + 1})")
        outcome.dropped.append(f"{load.name}, round {round_number}, {contender.name}")

    def _attempt(self, contender: Contender, load: Load, round_number: int) -> Measurement:
        with self._running(contender) as (port, proxy):
            idle = loaded = None
            if proxy:
                time.sleep(SETTLE_SECONDS)
                idle = proxy.resident_bytes() / BYTES_PER_MEBIBYTE
            spent: list[float] = []
            waited: list[float] = []

            def at_edge(edge: str) -> None:
                nonlocal loaded
                if proxy:
                    spent.append(proxy.cpu_seconds())
                    waited.append(proxy.waited_seconds())
                    if edge == "end":
                        loaded = proxy.resident_bytes() / BYTES_PER_MEBIBYTE

            seen = loads.run(
                load, target_port=port, nonce=self.nonce, core=self.load_core, folder=self.folder, at_edge=at_edge
            )
            if proxy:
                proxy.check_alive()
        cpu = (spent[1] - spent[0]) * CHUNKS_PER_FIGURE / seen.events if len(spent) == 2 and seen.events else None
        measurement = Measurement(
            contender=contender.name,
            load=load.name,
            round=round_number,
            seen=seen,
            cpu_seconds=cpu,
            starved=(waited[1] - waited[0]) * 1000 / load.measure_ms if len(waited) == 2 else 0.0,
            idle_mebibytes=idle,
            loaded_mebibytes=loaded,
        )
        _tell(measurement)
        return measurement

    @contextmanager
    def _running(self, contender: Contender) -> Iterator[tuple[int, Pinned | None]]:
        if contender.command is None:
            yield self.backend_port, None
            return
        port, admin_port = free_ports(2)
        with tempfile.TemporaryDirectory(prefix=f"{contender.name}-", dir=self.folder) as folder:
            place = Place(folder=Path(folder), port=port, admin_port=admin_port, backend_port=self.backend_port)
            command = contender.command(place)
            with Pinned(
                contender.name,
                command.argv,
                core=self.proxy_core,
                folder=place.folder,
                environment=command.environment,
            ) as proxy:
                wait_for_answer(port, self.nonce, proxy)
                with _scraped(contender, admin_port):
                    yield port, proxy


def run(plan: Sequence[tuple[Load, Sequence[Contender], int]], *, attempts: int) -> Outcome:
    """Measure every load of the plan through its contenders in so many rounds.

    Args:
        plan: What to measure.
        attempts: How often a run is tried whose load was late.

    Raises:
        BenchError: See `Bench.measure`.
    """
    outcome = Outcome()
    with _bench() as bench:
        for load, contenders, rounds in plan:
            for number in range(rounds):
                turn = number % len(contenders)
                for contender in [*contenders[turn:], *contenders[:turn]]:
                    bench.measure(contender, load, round_number=number + 1, attempts=attempts, outcome=outcome)
    return outcome


@contextmanager
def _bench() -> Iterator[Bench]:
    proxy_core, load_core = two_cores()
    nonce = secrets.token_hex(8)
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        argv = [binaries.relaybench(), "backend", "-port", str(port), "-nonce", nonce]
        with Pinned("backend", argv, core=load_core, folder=folder) as backend:
            wait_for_answer(port, nonce, backend)
            yield Bench(folder, proxy_core, load_core, port, nonce)


@contextmanager
def _scraped(contender: Contender, admin_port: int) -> Iterator[None]:
    """Read a contender's metrics once a second, as a Prometheus in a hurry would."""
    if contender.metrics_path is None:
        yield
        return
    url = f"http://127.0.0.1:{admin_port}{contender.metrics_path}"
    over = threading.Event()
    faults: list[str] = []

    def scrape() -> None:
        while not over.wait(SCRAPE_SECONDS):
            try:
                urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_SECONDS).close()
            except OSError as error:
                faults.append(str(error))

    thread = threading.Thread(target=scrape, name="scrape")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if faults:
        raise BenchError(f"the metrics of {contender.name} could not be read {len(faults)} times: {faults[-1]}")


def wait_for_answer(port: int, nonce: str, process: Pinned) -> None:
    """Wait until a stream from the backend with this nonce comes through a port.

    Nobody else's process can pass on this backend's nonce, so a port taken by another program is noticed.

    Raises:
        BenchError: The process ended, or did not answer in time.
    """
    deadline = time.monotonic() + START_SECONDS
    problem = "nothing listens"
    while time.monotonic() < deadline:
        process.check_alive()
        try:
            problem = _probe(port, nonce)
        except (OSError, http.client.HTTPException) as error:
            problem = repr(error)
        if not problem:
            return
        time.sleep(PROBE_SECONDS)
    raise BenchError(
        f"{process.name} did not pass on a stream within {START_SECONDS:.0f} s ({problem}). "
        f"The end of its log:\n{process.log_tail()}"
    )


def _probe(port: int, nonce: str) -> str:
    request = {
        "model": "bench",
        "stream": True,
        "max_tokens": 1,
        "bench_interval_us": 1000,
        "messages": [{"role": "user", "content": "Are you there?"}],
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        headers = {"content-type": "application/json", "authorization": f"Bearer {API_KEY}"}
        connection.request("POST", "/v1/chat/completions", json.dumps(request), headers)
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
    finally:
        connection.close()
    if response.status != 200:
        return f"it answered {response.status}: {body[:200]}"
    return "" if nonce in body else "another backend answered"


def _tell(measurement: Measurement) -> None:
    seen = measurement.seen
    cpu = "" if measurement.cpu_seconds is None else f"CPU {measurement.cpu_seconds:.3f} s, "
    load_average = Path("/proc/loadavg").read_text().split()[0]
    starved = "" if measurement.cpu_seconds is None else f"kept from its core {measurement.starved:.1%}, "
    say(
        f"{measurement.load}, round {measurement.round}, {measurement.contender}: {cpu}"
        f"first byte {seen.first_byte_p50_ms:.2f}/{seen.first_byte_p99_ms:.2f} ms, "
        f"{seen.complete} streams complete, {seen.lost} lost, "
        f"{starved}lag {seen.lag_p99_ms:.1f} ms (load average {load_average})"
    )
