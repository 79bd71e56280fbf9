"""Processes: a recycled pid is never hit, marks find what no state file lists, and logs tell the cause."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import process
from e2e.cluster.errors import ClusterError
from e2e.cluster.process import Identity, Part, children, end, identity, last_words, marked, wait_until


def test_a_process_is_itself_for_as_long_as_it_lives(sleeper, sleeper_identity):
    assert sleeper_identity.alive
    sleeper.kill()
    sleeper.wait()
    assert not sleeper_identity.alive


def test_a_zombie_does_not_count_as_alive(sleeper, sleeper_identity):
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not sleeper_identity.alive


def test_a_process_that_got_a_recycled_pid_is_spared(sleeper, sleeper_identity):
    former = Identity(sleeper.pid, sleeper_identity.started - 1)
    assert former.send(signal.SIGKILL) is False
    assert end([former], grace_seconds=0) == []
    assert sleeper.poll() is None


def test_a_signal_to_a_process_that_is_gone_says_so(sleeper, sleeper_identity):
    sleeper.kill()
    sleeper.wait()
    assert sleeper_identity.send(signal.SIGTERM) is False


def test_a_command_name_with_brackets_and_blanks_is_no_problem(tmp_path):
    program = tmp_path / "a) S 1 ("
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as odd:
        assert process.parent(odd.pid) == os.getpid()
        assert identity(odd.pid) in children(os.getpid())
        odd.kill()


def test_end_is_gentle_first(tmp_path):
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('on', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as polite:
        polite.stdout.readline()
        assert end([identity(polite.pid)], grace_seconds=20) == []
        assert polite.wait() == 7


def test_end_kills_what_does_not_listen():
    script = "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as stubborn:
        stubborn.stdout.readline()
        assert end([identity(stubborn.pid)], grace_seconds=0.2) == []
        assert stubborn.wait() == -signal.SIGKILL


def test_marked_processes_are_found_with_their_children_and_no_others(tmp_path):
    mark = f"PENSTOCK_TEST={tmp_path}"
    script = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"
    argv, environment = [sys.executable, "-c", script], {**os.environ, "PENSTOCK_TEST": str(tmp_path)}
    other = {**os.environ, "PENSTOCK_TEST": f"{tmp_path}-other"}
    with (
        subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as ours,
        subprocess.Popen(argv, env=other, stdout=subprocess.PIPE) as theirs,
    ):
        child, stranger = int(ours.stdout.readline()), int(theirs.stdout.readline())
        assert {found.pid for found in marked(mark)} == {ours.pid, child}
        end([*marked(mark), *marked(f"{mark}-other")], grace_seconds=0)
        assert identity(child) is None
        assert identity(stranger) is None


def test_a_marked_process_does_not_find_itself_or_its_ancestors(tmp_path):
    script = f"from e2e.cluster.process import marked; print(marked('PENSTOCK_TEST={tmp_path}'))"
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; :', sys.executable, script],
        env={**os.environ, "PENSTOCK_TEST": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "  (it has written nothing)"),
        (
            "I1129 12:00:00.0 1 a.go:1] fine\nE1129 12:00:01.0 1 b.go:2] the cause\nI1129 bye\n",
            "  E1129 12:00:01.0 1 b.go:2] the cause",
        ),
        ("+ kube-apiserver --x\nError: unknown flag: --x\n", "  Error: unknown flag: --x"),
        ('time="t" level=info msg="a"\ntime="t" level=fatal msg="in use"\n', '  time="t" level=fatal msg="in use"'),
        ("2026-01-01 I | embed: a\n2026-01-01 C | etcdmain: bind\n", "  2026-01-01 C | etcdmain: bind"),
        ("I1129 12:00:00.0 1 a.go:1] only this\n\n", "  I1129 12:00:00.0 1 a.go:1] only this"),
        ("same\nsame\n", "  same"),
        (
            "flag provided but not defined: -x\nUsage:\n\n  --error-log 'x'\n\nMember:\n  --name\n",
            "  flag provided but not defined: -x",
        ),
        ("".join(f"line {n}\n" for n in range(9)), "\n".join(f"  line {n}" for n in range(4, 9))),
    ],
    ids=["empty", "klog", "usage", "containerd", "etcd", "nothing but chatter", "repeated", "long usage", "long"],
)
def test_last_words_are_the_lines_that_tell_a_cause(tmp_path, log, words):
    path = tmp_path / "part.log"
    path.write_text(log)
    assert last_words(path) == words


def test_a_log_that_was_never_made_is_no_error(tmp_path):
    assert last_words(tmp_path / "none.log") == "  (it has written nothing)"


def part(tmp_path, script):
    return Part("a part", ["sh", "-c", script], log=tmp_path / "part.log", environment=os.environ)


def test_a_part_that_dies_ends_the_wait_with_its_reason(tmp_path):
    with pytest.raises(ClusterError, match="a part ended with status 3") as caught:
        wait_until(lambda: "not yet", what="x", part=part(tmp_path, "echo no room; exit 3"), seconds=30)
    assert "no room" in str(caught.value)
    assert str(tmp_path / "part.log") in str(caught.value)


def test_any_other_part_that_dies_ends_the_wait_too(tmp_path):
    alive = part(tmp_path, "exec sleep 60")
    dead = Part("another", ["sh", "-c", "exit 4"], log=tmp_path / "other.log", environment=os.environ)
    try:
        with pytest.raises(ClusterError, match="another ended with status 4"):
            wait_until(lambda: "not yet", what="x", part=alive, others=[dead], seconds=30)
    finally:
        alive.stop(grace_seconds=5)


def test_time_that_runs_out_says_what_is_missing(tmp_path):
    waiting = part(tmp_path, "echo still waiting; exec sleep 60")

    def refused() -> None:
        raise ConnectionRefusedError("nobody listens")

    try:
        with pytest.raises(ClusterError, match="a ready thing: not after 0 s \\(nobody listens\\)"):
            wait_until(refused, what="a ready thing", part=waiting, seconds=0)
    finally:
        waiting.stop(grace_seconds=5)


def test_a_fact_that_comes_true_ends_the_wait(tmp_path):
    answers = iter(["no", "no", None])
    running = part(tmp_path, "exec sleep 60")
    wait_until(lambda: next(answers), what="x", part=running, seconds=30)
    running.stop(grace_seconds=5)
    assert running.died
    assert next(answers, "used up") == "used up"
