"""One shape for every result: `results/NAME.json` for programs, a table for people, and an exit status.

A row that has a bar says in words what was promised, and `holds` is computed from the value: nobody types it in.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tabulate import tabulate

RESULTS_FOLDER = Path("results")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure. `low` and `high` are the range over the repetitions; without a bar it is information."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    bar: str | None = None
    holds: bool | None = None


def at_most(
    name: str, value: float, unit: str, *, limit: float, bar: str, low: float | None = None, high: float | None = None
) -> Row:
    """Return a row that holds when the value does not exceed the limit that `bar` tells in words."""
    return Row(name=name, value=value, unit=unit, low=low, high=high, bar=bar, holds=value <= limit)


def write(name: str, command: Sequence[str], rows: Iterable[Row], *, to: Path | None = None) -> Path:
    """Write the rows as `results/NAME.json`, or to the file given, and return where they are."""
    path = to or RESULTS_FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "name": name,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "command": shlex.join(command),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    return path


def judged_table(rows: Iterable[Row]) -> str:
    """Return the rows that have a bar as a table for people."""
    cells = [(row.name, _shown(row), row.bar, "yes" if row.holds else "NO") for row in rows if row.bar is not None]
    return tabulate(cells, headers=["promise", "measured", "bar", "holds"], tablefmt="simple", disable_numparse=True)


def full_table(rows: Iterable[Row]) -> str:
    """Return every row as a table for people, information included."""
    cells = [(row.name, _shown(row), row.bar or "", {True: "yes", False: "NO", None: ""}[row.holds]) for row in rows]
    return tabulate(cells, headers=["what", "measured", "bar", "holds"], tablefmt="simple", disable_numparse=True)


def exit_status(rows: Iterable[Row]) -> int:
    """Return 1 when a row does not hold, else 0."""
    return int(any(row.holds is False for row in rows))


def _shown(row: Row) -> str:
    unit = f" {row.unit}" if row.unit else ""
    spread = "" if row.low is None or row.high is None else f" ({row.low:.3g} to {row.high:.3g})"
    return f"{row.value:.3g}{unit}{spread}"
