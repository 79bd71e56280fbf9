"""The time a request may wait is the shortest that anybody names, and a client can only shorten it."""

from __future__ import annotations

import pytest

from penstock.api.admission import PriorityClass, Queue
from penstock.limiter.head import parse_request
from penstock.limiter.patience import number, patience_seconds


def head(**fields: str):
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return parse_request(f"POST / HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())


@pytest.mark.parametrize(
    ("of_class", "of_queue", "fields", "seconds"),
    [
        (10, 30, {}, 10.0),
        (60, 30, {}, 30.0),
        (10, 30, {"x_penstock_deadline_ms": "2500"}, 2.5),
        (10, 30, {"x_penstock_deadline_ms": "0"}, 0.0),
        (10, 30, {"x_penstock_deadline_ms": "60000"}, 10.0),
        (10, 30, {"x_stainless_read_timeout": "6"}, 3.0),
        (10, 30, {"x_stainless_read_timeout": "600"}, 10.0),
        (10, 30, {"x_stainless_read_timeout": "6", "x_penstock_deadline_ms": "4000"}, 3.0),
        (10, 30, {"x_stainless_read_timeout": "nonsense", "x_penstock_deadline_ms": "-1"}, 10.0),
    ],
    ids=[
        "the class", "the queue", "the client", "not at all", "never longer", "half of the SDK's", "a patient SDK",
        "the shortest", "nonsense",
    ],
)  # fmt: skip
def test_the_shortest_time_counts(of_class: int, of_queue: int, fields: dict[str, str], seconds: float) -> None:
    priority_class = PriorityClass(name="normal", max_wait_seconds=of_class)
    found = patience_seconds(head(**fields), priority_class, Queue(max_wait_seconds=of_queue))
    assert found == seconds


@pytest.mark.parametrize(
    ("value", "found"),
    [("5", 5.0), ("5.5", 5.5), ("0", 0.0), ("-5", None), ("nan", None), ("inf", None), ("1e9", None), ("1_0", None),
     ("", None), ("5;6", None), ("9" * 16, None)],
)  # fmt: skip
def test_only_plain_numbers_are_read(value: str, found: float | None) -> None:
    assert number(head(x=value), b"x") == found


def test_a_header_that_is_not_there_has_no_number() -> None:
    assert number(head(), b"x") is None
