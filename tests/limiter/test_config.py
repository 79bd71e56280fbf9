"""The policy file: taken over when it changes, never when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.limiter.app import BODY_BUDGET_DEFAULT_BYTES, body_budget_bytes
from penstock.limiter.config import PolicyFile


def publish(folder: Path, version: int, text: str) -> Path:
    """Write as kubelet does: a new folder, and a link that is swapped to it."""
    (folder / f"v{version}").mkdir()
    (folder / f"v{version}" / "policy.json").write_text(text)
    (folder / "new").symlink_to(f"v{version}")
    (folder / "new").replace(folder / "..data")
    path = folder / "policy.json"
    if not path.is_symlink():
        path.symlink_to("..data/policy.json")
    return path


def test_a_swapped_link_is_noticed(tmp_path: Path) -> None:
    policy = PolicyFile(publish(tmp_path, 1, '{"maximumBodyMebibytes": 1}'))
    assert policy.refresh()
    assert policy.policy.maximum_body_mebibytes == 1
    assert not policy.refresh()
    publish(tmp_path, 2, '{"maximumBodyMebibytes": 2, "fromTheFuture": 1}')
    assert policy.refresh()
    assert policy.policy.maximum_body_mebibytes == 2
    assert policy.unknown_keys == ("fromTheFuture",)


@pytest.mark.parametrize("bad", ["{", "[]", '{"maximumBodyMebibytes": 0}', '{"logLevel": "Loud"}'])
def test_a_bad_policy_keeps_the_last_good_one(tmp_path: Path, bad: str) -> None:
    policy = PolicyFile(publish(tmp_path, 1, '{"maximumBodyMebibytes": 5}'))
    policy.refresh()
    publish(tmp_path, 2, bad)
    assert not policy.refresh()
    assert not policy.refresh()
    assert policy.policy.maximum_body_mebibytes == 5
    assert policy.loaded
    assert policy.rejected == 1
    assert policy.problem is not None
    publish(tmp_path, 3, '{"maximumBodyMebibytes": 6}')
    assert policy.refresh()
    assert policy.problem is None


def test_a_missing_policy_is_a_problem_with_a_name(tmp_path: Path) -> None:
    policy = PolicyFile(tmp_path / "policy.json")
    policy.refresh()
    assert not policy.loaded
    assert "policy.json" in str(policy.problem)
    publish(tmp_path, 1, "{}")
    assert policy.refresh()
    assert policy.loaded


@pytest.mark.parametrize(
    ("text", "budget"),
    [("1000000000\n", 400_000_000), ("max\n", BODY_BUDGET_DEFAULT_BYTES), (None, BODY_BUDGET_DEFAULT_BYTES)],
)
def test_bodies_get_a_share_of_the_memory_limit(tmp_path: Path, text: str | None, budget: int) -> None:
    path = tmp_path / "memory.max"
    if text is not None:
        path.write_text(text)
    assert body_budget_bytes(path) == budget


def test_the_memory_limit_of_the_pod_is_believed_where_the_kernel_tells_none(tmp_path: Path) -> None:
    assert body_budget_bytes(tmp_path / "memory.max", limit_bytes=1_000_000_000) == 400_000_000
