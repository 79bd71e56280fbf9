import json

import pytest

from bench.results import Row, at_most, exit_status, judged_table, write


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        pytest.param(1.09, True, id="below the limit"),
        pytest.param(1.1, True, id="at the limit"),
        pytest.param(1.11, False, id="above the limit"),
    ],
)
def test_a_row_holds_up_to_and_at_its_limit(value, holds):
    row = at_most("ratio", value, "", limit=1.1, bar="at most 1.1 × nginx")
    assert row.holds is holds
    assert exit_status([row]) == (0 if holds else 1)


def test_rows_without_a_bar_never_fail_a_run():
    assert exit_status([Row(name="memory", value=1e9, unit="MiB")]) == 0


def test_the_table_shows_judged_rows_only_and_marks_the_failed_ones():
    shown = judged_table(
        [
            Row(name="information", value=1, unit="s"),
            at_most("good", 1, "s", limit=2, bar="under 2", low=0.5, high=1.5),
            at_most("bad", 3, "s", limit=2, bar="under 2"),
        ]
    )
    assert "information" not in shown
    good, bad = (next(line for line in shown.splitlines() if line.startswith(name)) for name in ("good", "bad"))
    assert good.endswith("yes")
    assert "1 s (0.5 to 1.5)" in good
    assert bad.endswith("NO")


def test_the_file_holds_what_programs_need(tmp_path):
    rows = [at_most("lost", 0, "streams", limit=0, bar="none lost")]
    path = write("bench-relay", ["python", "-m", "bench.relay"], rows, to=tmp_path / "deep" / "bench-relay.json")
    document = json.loads(path.read_text())
    assert document["name"] == "bench-relay"
    assert document["command"] == "python -m bench.relay"
    assert document["cores"] >= 1
    assert {"name": "lost", "value": 0, "unit": "streams", "bar": "none lost", "holds": True}.items() <= document[
        "rows"
    ][0].items()
