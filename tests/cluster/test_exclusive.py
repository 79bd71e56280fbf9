"""One command at a time, and a clean end on SIGTERM."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from e2e.cluster.exclusive import lock, sigterm_as_exit

HOLD = """
import sys
from pathlib import Path
from e2e.cluster.exclusive import lock
with lock(Path(sys.argv[1])) as file:
    print("held", flush=True)
    sys.stdin.readline()
    file.unlink()
"""


def test_the_second_waits_until_the_first_has_removed_the_lock_and_gets_a_new_one(tmp_path):
    root = tmp_path / "clusters" / "x"
    command = [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "held\n"
        entered = threading.Event()

        def second():
            with lock(root) as file:
                assert file.exists()
                entered.set()

        waiting = threading.Thread(target=second)
        waiting.start()
        assert not entered.wait(0.3)
        first.communicate("go\n")
        waiting.join(timeout=30)
    assert entered.is_set()


def test_a_lock_can_be_taken_again_after_it_was_released(tmp_path):
    for _ in range(2):
        with lock(tmp_path / "x") as file:
            assert file == tmp_path / "x.lock"


def test_sigterm_unwinds_the_stack_and_the_old_handler_comes_back():
    before = signal.getsignal(signal.SIGTERM)
    unwound = []

    def stopped():
        with sigterm_as_exit():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(30)
            finally:
                unwound.append(True)

    with pytest.raises(SystemExit) as caught:
        stopped()
    assert caught.value.code == 128 + signal.SIGTERM
    assert unwound
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_signals_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def body():
        with sigterm_as_exit():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]
