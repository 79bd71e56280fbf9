"""What is kept about a kind cluster between two commands."""

import pytest

from e2e.cluster.kind import state
from e2e.cluster.kind.state import State
from e2e.cluster.node import Node
from e2e.cluster.process import Identity

OWN = State(kind="/bin/kind", anchor=Identity(7, 99))
FULL = OWN.but(nodes=(Node("a", "198.18.0.2"), Node("b", "198.18.0.3")), up=True)
STOCK = State(kind="/bin/kind", anchor=None)


@pytest.mark.parametrize("one", [OWN, FULL, STOCK], ids=["started", "up", "user's daemon"])
def test_what_is_written_is_read(tmp_path, one):
    state.write(tmp_path, one)
    found = state.read(tmp_path)
    assert found == one.but(kind=found.kind)
    assert str(found.kind) == "/bin/kind"


def test_no_file_is_no_cluster(tmp_path):
    assert state.read(tmp_path) is None


def test_the_last_state_counts_and_no_scratch_file_stays(tmp_path):
    state.write(tmp_path, OWN)
    state.write(tmp_path, FULL)
    assert state.read(tmp_path).up
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
