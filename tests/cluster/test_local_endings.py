"""The ends of a local cluster, for real: whatever happens to `up`, the machine is as before and the cause is told."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.cluster import ClusterError, cleanup, machine, open_cluster, process
from e2e.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]


def start_up(name):
    """Start `up` as a command of its own, and return it once its programs run."""
    command = subprocess.Popen(  # a shell's background job ignores SIGINT, and so would what it starts
        ["env", "--default-signal=INT", sys.executable, "-m", "e2e.cluster", "up", "--name", name],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in command.stderr:
        if "etcd, API server" in line:
            break
    else:
        pytest.fail("`up` ended before it started anything")
    root = machine.folders_of(name).root
    deadline = time.monotonic() + 60
    while not (root / "logs" / "containerd-1.log").exists():
        assert time.monotonic() < deadline, "containerd was not started"
        time.sleep(0.05)
    return command


@pytest.fixture
def name():
    """A cluster's name; whatever is left of it at the end of the test is removed."""
    yield "test-ended"
    open_cluster(name="test-ended").down()


def test_down_removes_what_a_killed_up_has_left(name, trace):
    command = start_up(name)
    traces = trace(name)
    assert traces.processes
    command.kill()
    command.wait()
    command.stderr.close()
    assert [line for line in traces.left() if "process" in line], "the kill was to leave something"
    open_cluster(name=name).down()
    assert traces.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_interrupted_up_removes_all_but_the_logs(name, trace, number):
    command = start_up(name)
    traces = trace(name)
    command.send_signal(number)
    assert command.wait(timeout=60) == 128 + number
    command.stderr.close()
    assert traces.left() == [f"files in {traces.root}"]
    assert [path.name for path in traces.root.iterdir()] == ["logs"]


@pytest.mark.parametrize(
    ("part", "log"), [("kube-apiserver", "kube-apiserver"), ("kubelet", "kubelet-[12]"), ("etcd", "etcd")]
)
def test_a_failed_start_names_the_part_and_says_why(name, trace, part, log):
    cluster = LocalCluster(name, extra_arguments={part: ["--no-such-flag"]})
    with pytest.raises(ClusterError, match=f"{log} ended with status") as caught:
        cluster.up()
    assert "no-such-flag" in str(caught.value)
    named = Path(str(caught.value).rpartition("The whole log: ")[2])
    assert named.parent == cluster.logs
    assert "no-such-flag" in named.read_text()
    assert trace(name).left() == [f"files in {cluster.logs.parent}"]


def test_two_ups_of_one_name_take_turns(name):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: open_cluster(name=name).up(), range(2)))
    status = open_cluster(name=name).status()
    assert status["up"]
    pids = {part["pid"] for part in status["parts"]}
    servers = [one for one in process.marked(cleanup.mark(machine.folders_of(name).root)) if one.pid in pids]
    assert len(servers) == len(pids) == 11
