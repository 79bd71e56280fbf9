"""The reference page of the admission rate says every word that a user can meet."""

from __future__ import annotations

import re

import pytest

from penstock.admission.gatestate import HeldBy
from penstock.fleet.law import Rule
from penstock.fleet.reference import page
from penstock.runtime.fleetmetrics import FleetMetrics

PAGE = page()


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_is_told_with_its_meaning(rule: Rule) -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{rule}` | "))
    assert line.endswith(". |")


def test_the_words_of_the_status_and_of_what_makes_requests_wait_are_told() -> None:
    rows = {
        line.split(" | ")[0]: set(re.findall(r"`(\w+)`", line.split(" | ")[1]))
        for line in PAGE.splitlines()
        if " | " in line
    }
    assert rows["| `status.admission.limitedBy`"] == {"decay", "severe", "overload", "recovery", "tracking", "fixed"}
    assert set(HeldBy) <= rows["| `signals.heldBy` in `/state`"]


def test_the_operator_s_metrics_that_are_told_exist() -> None:
    families = {family.name + ("_total" if family.type == "counter" else "") for family in FleetMetrics().collect()}
    told = set(re.findall(r"`(penstock_\w+)` \(operator\)", PAGE))
    assert told
    assert told <= families
