"""Medians over rounds, ratios inside a round, and rows that can fail."""

import pytest

from bench.relay import report
from bench.relay.loads import Load, Seen
from bench.relay.report import Spread
from bench.relay.rounds import MAXIMUM_STARVED, Carried, Measurement, Outcome

LOAD = Load(name="heavy", streams=10, chunks=10, every_ms=100, warmup_ms=0, measure_ms=1000)


def seen(*, first_byte=1.0, lag=1.0, events=100, lost=0):
    return Seen(
        events=events, complete=10, refused=lost, short=0, corrupt=0, reasons=(), first_byte_p50_ms=first_byte,
        first_byte_p99_ms=2 * first_byte, delay_p50_ms=1, delay_p99_ms=1, lag_p99_ms=lag,
    )  # fmt: skip


def measurement(contender, number, *, cpu=None, first_byte=1.0, starved=0.0):
    return Measurement(
        contender=contender, load=LOAD.name, round=number, seen=seen(first_byte=first_byte), cpu_seconds=cpu,
        starved=starved, idle_mebibytes=10, loaded_mebibytes=20,
    )  # fmt: skip


def outcome(measurements, lost=0):
    return Outcome(measurements, {one.contender: Carried(100, lost) for one in measurements})


def rows(measurements, *, judge_ratio=LOAD.name, lost=0):
    found = report.rows(
        outcome(measurements, lost), cpu_loads=[LOAD.name], first_byte_load=LOAD.name, judge_ratio=judge_ratio
    )
    return {row.name: row for row in found}


def three_rounds(limiter, nginx):
    return [
        *(measurement("limiter", number, cpu=value) for number, value in enumerate(limiter)),
        *(measurement("nginx", number, cpu=value) for number, value in enumerate(nginx)),
    ]


def test_ratios_are_taken_inside_a_round_and_not_between_medians():
    # Round 1 was slow for both. The ratio of the medians would be 2.0 / 1.0; in each round it was 1.0 or 2.0.
    measured = three_rounds(limiter=[1.0, 4.0, 2.0], nginx=[1.0, 4.0, 1.0])
    found = report.against(measured, LOAD.name, "limiter", rival="nginx", value=report.cpu, combine=report.ratio)
    assert found == Spread(1.0, 1.0, 2.0)


def test_rounds_that_only_one_of_two_brought_are_left_out():
    measured = [*three_rounds(limiter=[1.0, 9.0], nginx=[1.0]), measurement("direct", 0)]
    found = report.against(measured, LOAD.name, "limiter", rival="nginx", value=report.cpu, combine=report.ratio)
    assert found == Spread(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("limiter", "holds"),
    [pytest.param(1.09, True, id="within the bar"), pytest.param(1.2, False, id="over the bar")],
)
def test_the_limiter_is_judged_against_nginx(limiter, holds):
    row = rows(three_rounds(limiter=[limiter] * 3, nginx=[1.0] * 3))["heavy: limiter CPU / nginx CPU"]
    assert row.bar == report.NGINX_BAR
    assert row.holds is holds


def test_a_short_run_does_not_judge_the_ratio():
    row = rows(three_rounds(limiter=[5.0], nginx=[1.0]), judge_ratio=None)["heavy: limiter CPU / nginx CPU"]
    assert (row.value, row.bar, row.holds) == (5.0, None, None)


def test_one_lost_stream_fails_its_row():
    measured = [measurement("nginx", 0, cpu=1.0)]
    assert rows(measured)["nginx lost streams of 100"].holds
    assert rows(measured, lost=1)["nginx lost streams of 100"].holds is False


def test_every_lost_stream_counts_although_only_a_few_reasons_are_kept():
    carried = Carried()
    carried.add(seen(lost=7))
    carried.add(seen())
    assert (carried.streams, carried.lost) == (27, 7)


def test_added_first_byte_time_is_what_comes_on_top_of_no_proxy():
    measured = [measurement("direct", 0, first_byte=1.0), measurement("nginx", 0, cpu=1.0, first_byte=1.5)]
    found = rows(measured)
    assert found["heavy: nginx added first byte p50"].value == pytest.approx(0.5)
    assert found["heavy: nginx added first byte p99"].value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        pytest.param(seen(), None, id="in time"),
        pytest.param(seen(lag=11.0), "11.0 ms late", id="the load was late"),
        pytest.param(seen(events=50), "50 events came", id="half of the events are missing"),
        pytest.param(seen(events=50, lost=5), None, id="lost streams are the proxy's fault and not a reason to repeat"),
    ],
)
def test_a_run_counts_only_when_the_load_was_what_it_claims(what, problem):
    assert what.problem(LOAD) is None if problem is None else problem in what.problem(LOAD)


def test_a_proxy_kept_from_its_core_does_not_count():
    assert measurement("nginx", 0, starved=MAXIMUM_STARVED).problem() is None
    assert "kept the proxy from its core" in measurement("nginx", 0, starved=2 * MAXIMUM_STARVED).problem()


def test_the_table_has_a_line_for_a_contender_without_any_valid_run():
    broken = outcome([measurement("nginx", 0, cpu=1.0)])
    broken.carried["envoy"] = Carried(7)
    line = report.table(broken, load=LOAD.name, first_byte_load=LOAD.name).splitlines()[-1]
    assert line.split()[:3] == ["envoy", "-", "-"]
    assert line.endswith("0 of 7")
