"""Downloads as processes of their own: several at once, and ended in the middle in every way."""

import os
import signal

from e2e.hub import Hub

FILES = "acme/tiny-gguf"
REPLICAS = 10
TIMEOUT_SECONDS = 60


def ended(process):
    said = process.communicate(timeout=TIMEOUT_SECONDS)[1]
    return process.returncode, said.splitlines()


def source(hub: Hub) -> bytes:
    return hub.repositories[FILES].files["tiny.gguf"].source


def test_ten_replicas_download_once(hub, download):
    """The first holds the lock until all others are waiting: they start while it is held in the middle."""
    hub.faults.bytes_per_second = 300_000
    one = download()
    running = [one.start() for _ in range(REPLICAS)]
    one.wait_until_it_runs()
    hub.faults.bytes_per_second = None
    outcomes = [ended(process) for process in running]
    assert [status for status, _ in outcomes] == [0] * REPLICAS
    assert hub.downloads(FILES, "tiny.gguf") == 1
    assert len([one for one in hub.requests if one.path.startswith("/api/")]) == 1
    assert (one.published / "tiny.gguf").read_bytes() == source(hub)
    assert sum("downloaded 25.0 MB" in lines[-1] for _, lines in outcomes) == 1


def test_a_waiting_replica_says_whom_it_waits_for(hub, download):
    hub.faults.bytes_per_second = 300_000
    one = download()
    holder = one.start()
    one.wait_until_it_runs()
    waiter = one.start()
    assert waiter.stderr.readline() == f"waiting for {os.uname().nodename}, which downloads {FILES} at revision main\n"
    hub.faults.bytes_per_second = None
    assert ended(holder)[0] == 0
    status, lines = ended(waiter)
    assert (status, hub.downloads(FILES, "tiny.gguf")) == (0, 1)
    assert "is there: commit" in lines[-1]


def test_a_killed_download_goes_on_where_it_was(hub, download):
    hub.faults.bytes_per_second = 10_000_000
    one = download()
    first = one.start()
    one.wait_until_it_runs(10_000_000)
    first.kill()
    ended(first)
    hub.faults.bytes_per_second = None
    assert not one.published.exists()
    status, _ = ended(one.start())
    assert status == 0
    starts = hub.starts(FILES, "tiny.gguf")
    assert starts[0] is None
    assert starts[1] >= 10_000_000
    assert (one.published / "tiny.gguf").read_bytes() == source(hub)


def test_a_replica_takes_over_from_one_that_is_killed(hub, download):
    hub.faults.bytes_per_second = 300_000
    one = download()
    holder = one.start()
    one.wait_until_it_runs()
    waiter = one.start()
    assert "waiting for" in waiter.stderr.readline()
    hub.faults.bytes_per_second = None
    holder.kill()
    ended(holder)
    status, _ = ended(waiter)
    assert status == 0
    assert (one.published / "tiny.gguf").read_bytes() == source(hub)


def test_sigterm_ends_it_at_once_and_keeps_what_is_there(hub, download):
    hub.faults.bytes_per_second = 300_000  # over a minute for the whole
    one = download()
    process = one.start()
    one.wait_until_it_runs()
    process.send_signal(signal.SIGTERM)
    status, lines = ended(process)
    assert status == 128 + signal.SIGTERM
    assert lines[-1] == "told to stop: what has been downloaded stays and is gone on with"
    assert (one.staging / "tiny.gguf.incomplete").stat().st_size < 25_000_000
    assert not one.published.exists()


IN_A_FULL_VOLUME = """
import sys
from penstock.download.store import Store
Store.free_bytes = lambda self: 1 << 40  # as on a volume that others fill meanwhile
from penstock.cli.main import cli
cli(["download"])
"""


def on_small_volume(download, *command):
    """Return the arguments for a download on a volume of 1 MB, which is gone with the process."""
    script = f'mount -t tmpfs -o size=1m none {download.published.parent} && exec "$@"'
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "sh", "-c", script, "sh"]


def test_a_volume_that_is_too_small_is_told_before_the_download(hub, download):
    one = download()
    status, lines = ended(one.start(*on_small_volume(one)))
    assert (status, hub.starts(FILES, "tiny.gguf")) == (2, [])
    assert "needs 25.0 MB, the volume at" in lines[-1]


def test_a_volume_that_fills_up_in_the_middle_is_told(hub, download):
    one = download()
    status, lines = ended(one.start(*on_small_volume(one), program=("-c", IN_A_FULL_VOLUME)))
    assert status == 2
    assert lines[-1] == f"the volume at {one.published.parent} is full: make it larger than the model"


def test_the_group_may_go_on_with_what_one_user_has_begun(hub, download):
    one = download()
    assert ended(one.start())[0] == 0
    for path in (one.published, one.published.parent / ".penstock", one.published / "tiny.gguf"):
        assert path.stat().st_mode & 0o060 == 0o060, path
