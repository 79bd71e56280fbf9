"""Fault switches: read strictly, used up one request at a time."""

import pytest

from e2e.fakevllm.faults import Fault, FaultError, Faults, Kind


def test_a_fault_is_read_from_its_description():
    fault = Fault.parse({"kind": "cut", "times": 2, "tokens": 5})
    assert fault == Fault(Kind.CUT, 2, 5, 0.0)
    fault = Fault.parse({"kind": "load", "waiting": 10, "kv_cache": 0.95})
    assert (fault.kind, fault.waiting, fault.kv_cache) == (Kind.LOAD, 10, 0.95)


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        ([], "JSON object"),
        ({}, "kind must be one of hang"),
        ({"kind": "explode"}, "kind must be one of"),
        ({"kind": "cut", "after": 1}, "has no after"),
        ({"kind": "cut", "times": 0}, "times must be"),
        ({"kind": "cut", "tokens": -1}, "tokens and seconds"),
        ({"kind": "slow-tokens", "seconds": "long"}, "tokens and seconds"),
        ({"kind": "load", "waiting": -1}, "waiting must be"),
        ({"kind": "load", "kv_cache": 95}, "kv_cache must be"),
    ],
)
def test_a_bad_description_is_refused_with_what_is_wrong(description, complaint):
    with pytest.raises(FaultError, match=complaint):
        Fault.parse(description)


@pytest.mark.parametrize("text", ["nonsense", '{"kind": "cut"}', '[{"kind": "x"}]'])
def test_a_bad_list_is_refused(text):
    with pytest.raises(FaultError):
        Faults.from_text(text)


def test_no_text_means_no_faults():
    assert Faults.from_text("").get(Kind.HANG) is None


def test_a_fault_hits_as_often_as_it_says():
    faults = Faults([Fault(Kind.ERROR, times=2)])
    assert [faults.hit(Kind.ERROR) is not None for _ in range(4)] == [True, True, False, False]


def test_a_fault_without_times_stays_until_it_is_cleared():
    faults = Faults([Fault(Kind.ERROR)])
    assert all(faults.hit(Kind.ERROR) for _ in range(5))
    faults.clear()
    assert faults.hit(Kind.ERROR) is None


def test_a_new_fault_replaces_one_of_its_kind():
    faults = Faults([Fault(Kind.SLOW_TOKENS, seconds=1.0)])
    faults.switch_on(Fault(Kind.SLOW_TOKENS, seconds=2.0))
    found = faults.get(Kind.SLOW_TOKENS)
    assert found is not None
    assert found.seconds == 2.0
