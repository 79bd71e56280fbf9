"""Names of clusters, what is derived from them, and what a machine must have."""

import os
from pathlib import Path

import pytest

from e2e.cluster import machine
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import check_machine, check_name, folders_of


@pytest.mark.parametrize("name", ["e2e", "a", "two-words", "x" * 20, "n1"])
def test_a_short_dns_label_is_a_name(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "Upper", "a.b", "a/b", "../x", "1st", "x" * 21, "a\n"])
def test_other_names_are_refused_with_what_to_use(name):
    with pytest.raises(ClusterError, match="small letters, digits and inner hyphens"):
        check_name(name)


def test_two_names_share_neither_folder_nor_control_group():
    one, two = folders_of("one"), folders_of("two")
    assert one.root != two.root
    assert one.group != two.group


def test_one_name_in_two_caches_has_two_control_groups(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "a"))
    first = folders_of("e2e").group
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "b"))
    assert folders_of("e2e").group != first


def test_the_folders_of_a_name_stay_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert folders_of("e2e") == folders_of("e2e")
    assert folders_of("e2e").root == tmp_path / "clusters" / "e2e"


@pytest.fixture
def as_root_with_tools(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine.shutil, "which", lambda command: f"/usr/bin/{command}")


@pytest.mark.usefixtures("as_root_with_tools")
class TestMachine:
    def test_a_machine_with_everything_is_accepted(self):
        check_machine(Path("/home/me/.cache/penstock/clusters/e2e"))

    @pytest.mark.parametrize("folder", ["/run/user/0/c", "/var/lib/ci/c", "/var/log/c"])
    def test_a_folder_that_nodes_cannot_see_is_refused(self, folder):
        with pytest.raises(ClusterError, match="PENSTOCK_CACHE to a folder elsewhere"):
            check_machine(Path(folder))

    def test_a_folder_too_deep_for_sockets_is_refused(self):
        with pytest.raises(ClusterError, match="PENSTOCK_CACHE to a shorter path"):
            check_machine(Path("/" + "x" * 80))

    def test_every_problem_is_named_at_once(self, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(machine.shutil, "which", lambda command: None)
        with pytest.raises(ClusterError, match="root") as caught:
            check_machine(Path("/home/me"))
        assert "iproute2, mount, util-linux" in str(caught.value)
