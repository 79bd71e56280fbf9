"""The command line, and drivers by name."""

import json

import pytest

from e2e.cluster import ClusterError, __main__, open_cluster
from e2e.cluster.local import LocalCluster


def test_drivers_are_found_by_name():
    assert isinstance(open_cluster("local", name="any"), LocalCluster)


def test_an_unknown_driver_is_answered_with_the_known_ones():
    with pytest.raises(ClusterError, match="no cluster driver `cloud`; there is: local"):
        open_cluster("cloud")


def test_a_bad_name_is_refused_before_anything_is_done():
    with pytest.raises(ClusterError, match="is no name for a cluster"):
        open_cluster(name="../etc")


@pytest.fixture
def no_clusters(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))


@pytest.mark.usefixtures("no_clusters")
class TestWithoutACluster:
    def test_status_says_not_up_and_fails(self, capsys):
        assert __main__.main(["status", "--name", "x"]) == 1
        assert capsys.readouterr().out == "x: not up\n"

    def test_status_for_programs_is_json(self, capsys):
        assert __main__.main(["status", "--name", "x", "-o", "json"]) == 1
        status = json.loads(capsys.readouterr().out)
        assert (status["name"], status["up"], status["parts"]) == ("x", False, [])

    def test_a_command_in_its_network_is_answered_with_how_to_start_it(self):
        with pytest.raises(ClusterError, match=r"python -m e2e\.cluster up --name x"):
            open_cluster(name="x").enter(["true"])

    def test_an_unknown_node_is_answered_with_the_known_ones(self):
        with pytest.raises(ClusterError, match="has no node node-9; it has node-1, node-2"):
            open_cluster(name="x").enter(["true"], node="node-9")

    def test_down_is_harmless_and_leaves_nothing(self, tmp_path):
        __main__.main(["down", "--name", "x"])
        assert list((tmp_path / "clusters").iterdir()) == []


def test_the_table_shows_an_ended_part():
    part = {"name": "etcd", "pid": 7, "alive": False, "log": "/logs/etcd.log"}
    text = __main__.table({"name": "x", "up": False, "parts": [part]})
    assert "ended" in text
    assert "/logs/etcd.log" in text
