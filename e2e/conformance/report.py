"""The suite's result, for people and as a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.results import Row, exit_status, full_table, write
from e2e.conformance.suite import Outcome

SHOWN_DIFFERENCES = 6
FEWEST_CASES = 80


def finish(outcomes: Mapping[str, Sequence[Outcome]], *, command: Sequence[str], complete: bool) -> int:
    """Print the differences and the table, write the result if the suite was complete, and return the exit status.

    Args:
        outcomes: By kind of server.
        command: What was run.
        complete: Whether no case was left out.
    """
    rows: list[Row] = []
    for target, listed in outcomes.items():
        different = [outcome for outcome in listed if outcome.differences]
        for outcome in different:
            print(f"DIFFERENT {target} {outcome.name}")
            for line in outcome.differences[:SHOWN_DIFFERENCES]:
                print(f"    {line}")
        count = len(listed)
        rows += [
            Row(
                name=f"{target}: cases",
                value=count,
                unit="",
                bar=f"at least {FEWEST_CASES}",
                holds=count >= FEWEST_CASES,
            ),
            Row(name=f"{target}: equal to the recording of vLLM 0.32", value=count - len(different), unit=""),
            Row(name=f"{target}: different", value=len(different), unit="", bar="none", holds=not different),
        ]
    name = "conformance" if len(outcomes) > 1 else f"conformance-{next(iter(outcomes))}"
    if complete:
        write(name, command, rows)
    print(full_table(rows))
    return exit_status(rows) if complete else int(any(row.holds is False for row in rows if row.bar == "none"))
