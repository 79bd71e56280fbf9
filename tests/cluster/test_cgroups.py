"""Control groups: which mounts are hierarchies, and that a tree goes away from the leaves up."""

from pathlib import Path

import pytest

from e2e.cluster import cgroups
from e2e.cluster.cgroups import Mount, hierarchies, parse_mounts
from e2e.cluster.errors import ClusterError

HYBRID = """\
proc /proc proc rw,relatime 0 0
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
/dev/vda /mnt/with\\040blank\\134and\\011tab ext4 rw 0 0
"""
UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


def test_mounts_are_parsed_with_their_escapes_undone():
    mounts = parse_mounts(HYBRID)
    assert mounts[-1] == Mount(Path("/mnt/with blank\\and\ttab"), "ext4", ("rw",))
    assert len(mounts) == 6


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        (HYBRID, ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/unified"]),
        (UNIFIED, ["/sys/fs/cgroup"]),
        ("proc /proc proc rw 0 0\n", []),
    ],
    ids=["hybrid", "unified", "none"],
)
def test_hierarchies_are_found_in_every_layout(text, targets):
    assert [str(mount.target) for mount in hierarchies(parse_mounts(text))] == targets


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A folder that stands for /sys/fs/cgroup, and a way to say what is mounted below it."""

    def mounted(*mounts: tuple[str, str, str]) -> Path:
        found = [Mount(tmp_path / folder, kind, tuple(options.split(","))) for folder, kind, options in mounts]
        for mount in found:
            mount.target.mkdir(exist_ok=True)
        monkeypatch.setattr(cgroups, "mounts", lambda: found)
        return tmp_path

    return mounted


def test_version_1_groups_inherit_processors_and_memory_nodes_level_by_level(machine):
    root = machine(("cpuset", "cgroup", "rw,cpuset"), ("memory", "cgroup", "rw,memory"))
    (root / "cpuset/cpuset.cpus").write_text("0-1\n")
    (root / "cpuset/cpuset.mems").write_text("0\n")
    cgroups.create("cluster", "node-1")
    assert (root / "cpuset/cluster/node-1/cpuset.cpus").read_text() == "0-1\n"
    assert (root / "cpuset/cluster/node-1/cpuset.mems").read_text() == "0\n"
    assert (root / "memory/cluster/node-1").is_dir()


def test_version_2_groups_hand_down_the_controllers_that_there_are(machine):
    root = machine(("all", "cgroup2", "rw"))
    (root / "all/cgroup.controllers").write_text("cpuset cpu memory rdma\n")
    (root / "all/cgroup.subtree_control").write_text("")
    (root / "all/cluster").mkdir()
    (root / "all/cluster/cgroup.controllers").write_text("cpu\n")
    (root / "all/cluster/cgroup.subtree_control").write_text("")
    cgroups.create("cluster", "node-1")
    assert (root / "all/cgroup.subtree_control").read_text() == "+cpuset +cpu +memory"
    assert (root / "all/cluster/cgroup.subtree_control").read_text() == "+cpu"
    assert (root / "all/cluster/node-1").is_dir()


def test_no_control_groups_is_one_sentence(machine):
    machine(("plain", "ext4", "rw"))
    with pytest.raises(ClusterError, match="no control groups are mounted here"):
        cgroups.create("cluster")


def test_a_tree_is_removed_from_every_hierarchy_and_nothing_beside_it(machine):
    root = machine(("cpu", "cgroup", "rw,cpu"), ("memory", "cgroup", "rw,memory"))
    for hierarchy in ("cpu", "memory"):
        (root / hierarchy / "cluster/node-1/pod/container").mkdir(parents=True)
        (root / hierarchy / "cluster-of-another").mkdir()
    assert cgroups.remove("cluster") == []
    assert sorted(path.name for path in root.glob("*/*")) == ["cluster-of-another"] * 2


def test_a_group_in_use_is_reported(machine, monkeypatch):
    root = machine(("cpu", "cgroup", "rw,cpu"))
    busy = root / "cpu/cluster/node-1"
    busy.mkdir(parents=True)
    (busy / "a-file-keeps-a-folder").touch()
    monkeypatch.setattr(cgroups, "REMOVE_SECONDS", 0)
    assert busy in cgroups.remove("cluster")
