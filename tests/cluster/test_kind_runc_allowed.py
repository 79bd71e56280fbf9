"""The runtime that drops capabilities the machine does not have, and then is runc."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.kind import runc_allowed

SOME = frozenset({"CAP_CHOWN", "CAP_KILL"})


def status(*missing):
    bits = sum(1 << bit for bit, name in enumerate(runc_allowed.CAPABILITIES) if name not in missing)
    return f"Name:\tdockerd\nCapEff:\t{0:016x}\nCapBnd:\t{bits:016x}\nCapAmb:\t{0:016x}\n"


def test_there_is_a_name_for_every_capability_of_the_kernel():
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    assert len(runc_allowed.CAPABILITIES) == 41
    assert last <= 40, "the kernel has a capability that is newer than the list"


@pytest.mark.parametrize(
    ("name", "bit"), [("CAP_CHOWN", 0), ("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21), ("CAP_SYS_RESOURCE", 24)]
)
def test_a_capability_has_the_kernels_number(name, bit):
    assert runc_allowed.bounding_set(f"CapBnd:\t{1 << bit:016x}\n") == {name}


def test_the_bounding_set_lacks_what_the_machine_lacks():
    found = runc_allowed.bounding_set(status("CAP_SYS_RESOURCE"))
    assert found == set(runc_allowed.CAPABILITIES) - {"CAP_SYS_RESOURCE"}


def test_every_set_of_a_process_is_trimmed_and_the_rest_kept():
    process = {"args": ["sh"], "capabilities": {"bounding": ["CAP_KILL", "CAP_BPF"], "ambient": None, "effective": []}}
    trimmed = runc_allowed.without_missing(process, SOME)
    assert trimmed == {"args": ["sh"], "capabilities": {"bounding": ["CAP_KILL"], "ambient": [], "effective": []}}


def test_a_process_without_capabilities_is_fine():
    assert runc_allowed.without_missing({"args": ["sh"]}, SOME) == {"args": ["sh"], "capabilities": {}}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--root /r create --bundle /b --pid-file p id", ("/b/config.json", "process")),
        ("run -b /b id", ("/b/config.json", "process")),
        ("create --bundle=/b id", ("/b/config.json", "process")),
        ("create id", ("config.json", "process")),
        ("exec --process /p.json --detach id", ("/p.json", None)),
        ("exec --process=/p.json id", ("/p.json", None)),
        ("exec id sh", None),
        ("start id", None),
        ("delete --force id", None),
        ("create --bundle", ("config.json", "process")),
    ],
)
def test_the_file_with_the_process_is_found_in_runcs_arguments(arguments, found):
    expected = found and (Path(found[0]), found[1])
    assert runc_allowed.process_file(arguments.split()) == expected


@pytest.fixture
def run(tmp_path):
    """Run the program as Docker does, with a runc that prints its arguments."""
    fake = tmp_path / "bin" / "runc"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "runc $@"\n')
    fake.chmod(0o755)

    def call(*arguments):
        environment = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
        command = [sys.executable, "-I", "-S", runc_allowed.__file__, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    return call


@pytest.mark.parametrize("key", ["process", None], ids=["create", "exec"])
def test_it_rewrites_the_file_and_becomes_runc_with_the_same_arguments(tmp_path, run, key):
    allowed = runc_allowed.bounding_set(Path("/proc/self/status").read_text())
    process = {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_OF_NO_KERNEL"]}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({key: process, "hostname": "x"} if key else process))
    arguments = ["create", "--bundle", str(tmp_path), "id"] if key else ["exec", "--process", str(file), "id"]
    assert run(*arguments) == f"runc {' '.join(arguments)}\n"
    written = json.loads(file.read_text())
    kept = ["CAP_CHOWN"] if "CAP_CHOWN" in allowed else []
    assert (written[key] if key else written)["capabilities"]["bounding"] == kept


def test_a_command_that_starts_no_process_goes_straight_to_runc(run):
    assert run("state", "id") == "runc state id\n"
