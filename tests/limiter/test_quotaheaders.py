"""Quota headers: spelled as the SDKs know them, and never nearer than the truth."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admission.quotaview import QuotaView
from penstock.api.ratelimits import QuotaUnit
from penstock.limiter.quotaheaders import duration, fields
from penstock.limiter.refusal import Dialect

NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def view(
    name: str, unit: QuotaUnit = QuotaUnit.REQUESTS, *, limit: int = 10, remaining: int = 4, reset: float = 1.5
) -> QuotaView:
    return QuotaView(
        name=name, unit=unit, limit=limit, remaining=remaining, reset_seconds=reset,
        window_seconds=60,
    )  # fmt: skip


def told(*views: QuotaView, dialect: Dialect = Dialect.OPENAI, now: datetime = NOON) -> dict[str, str]:
    found = fields(views, dialect=dialect, now=now)
    assert len(found) == len(dict(found))
    return {name.decode(): value.decode() for name, value in found}


def test_openai() -> None:
    assert told(view("r"), view("t", QuotaUnit.TOKENS, limit=1000, remaining=0, reset=360)) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "4",
        "x-ratelimit-reset-requests": "1.5s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
        "RateLimit-Policy": '"r";q=10;w=60, "t";q=1000;w=60',
        "RateLimit": '"r";r=4;t=2, "t";r=0;t=360',
    }


def test_anthropic() -> None:
    found = told(view("r"), dialect=Dialect.ANTHROPIC)
    assert found == {
        "anthropic-ratelimit-requests-limit": "10",
        "anthropic-ratelimit-requests-remaining": "4",
        "anthropic-ratelimit-requests-reset": "2026-01-01T12:00:02Z",
        "RateLimit-Policy": '"r";q=10;w=60',
        "RateLimit": '"r";r=4;t=2',
    }


@pytest.mark.parametrize("dialect", Dialect)
def test_of_several_the_tightest_is_shown_and_all_are_named(dialect: Dialect) -> None:
    views = view("wide", limit=1000, remaining=500), view("half", remaining=5), view("tight", limit=10, remaining=2)
    found = told(*views, dialect=dialect)
    shown = {name: value for name, value in found.items() if "remaining" in name}
    assert list(shown.values()) == ["2"]
    assert found["RateLimit"].count(";r=") == 3


def test_prompt_tokens_are_shown_as_tokens_and_connections_only_to_those_who_read_all() -> None:
    found = told(view("p", QuotaUnit.PROMPT_TOKENS), view("c", QuotaUnit.CONNECTIONS))
    assert found["x-ratelimit-limit-tokens"] == "10"
    assert not [name for name in found if "connections" in name]
    assert '"c"' in found["RateLimit"]


def test_without_quotas_there_is_nothing() -> None:
    assert told() == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, b"0s"), (0.0001, b"1ms"), (0.012, b"12ms"), (0.9999, b"1s"), (1, b"1s"), (1.5, b"1.5s"), (59.9995, b"1m0s"),
        (60, b"1m0s"), (90, b"1m30s"), (360, b"6m0s"), (3600, b"1h0m0s"), (86_399, b"23h59m59s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_go_writes_them(seconds: float, text: bytes) -> None:
    assert duration(seconds) == text


@given(st.floats(0, 200_000))
def test_durations_are_never_too_short_and_hardly_too_long(seconds: float) -> None:
    hours, minutes, rest, milliseconds = re.fullmatch(
        rb"(?:(\d+)h)?(?:(\d+)m)??(?:([\d.]+)s)?(?:(\d+)ms)?", duration(seconds)
    ).groups(default=b"0")  # type: ignore[union-attr]
    found = int(hours) * 3600 + int(minutes) * 60 + float(rest) + int(milliseconds) / 1000
    assert seconds - 1e-6 <= found <= seconds + 0.001001


@given(micro=st.integers(0, 999_999), reset=st.floats(0, 100_000))
def test_an_absolute_time_is_never_before_the_quota_is_back(micro: int, reset: float) -> None:
    now = NOON.replace(microsecond=micro)
    text = told(view("r", reset=reset), dialect=Dialect.ANTHROPIC, now=now)["anthropic-ratelimit-requests-reset"]
    passed = (datetime.fromisoformat(text) - now).total_seconds()
    assert reset <= passed + 1e-6
    assert passed < reset + 2
