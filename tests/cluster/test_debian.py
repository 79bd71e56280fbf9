"""Packages: what apt's plan says, and what is said where there is no apt."""

import pytest

from e2e.cluster import debian
from e2e.cluster.debian import Packages, parse_plan
from e2e.cluster.errors import ClusterError

PLAN = """\
Reading package lists...
The following NEW packages will be installed:
  conntrack libnfnetlink0
Inst libnfnetlink0 (1.0.2-2 Debian:12.15/oldstable [amd64])
Inst conntrack (1:1.4.7-1+b2 Debian:12.15/oldstable [amd64])
Conf libnfnetlink0 (1.0.2-2 Debian:12.15/oldstable [amd64])
Conf conntrack (1:1.4.7-1+b2 Debian:12.15/oldstable [amd64])
"""


def test_a_plan_names_the_missing_dependencies():
    assert parse_plan(PLAN) == ["libnfnetlink0", "conntrack"]


def test_a_machine_without_apt_is_told_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(debian.shutil, "which", lambda command: None)
    with pytest.raises(ClusterError, match="this machine has no apt; use a Debian or Ubuntu machine"):
        debian.unpack(("etcd-server",))
    assert [path.name for path in tmp_path.glob("debian-etcd-server/*")] == [".lock"], "nothing may look finished"


def test_old_package_lists_are_refreshed_once(monkeypatch, tmp_path):
    calls = []

    def apt(*argv, cwd=None):
        calls.append(argv[1])
        if "update" not in calls:
            raise ClusterError("404")
        return PLAN

    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(debian.shutil, "which", lambda command: command)
    monkeypatch.setattr(debian, "_run", apt)
    debian.unpack(("conntrack",))
    assert calls == ["install", "update", "install", "download"]


def test_a_requested_package_is_downloaded_even_if_the_machine_has_it(monkeypatch, tmp_path):
    downloaded = []

    def apt(*argv, cwd=None):
        if argv[1] == "download":
            downloaded.extend(argv[2:])
        return PLAN

    monkeypatch.setattr(debian, "_run", apt)
    debian._download(("runc",), tmp_path)
    assert downloaded == ["conntrack", "libnfnetlink0", "runc"]


def test_programs_and_libraries_come_from_the_unpacked_folder_first(tmp_path):
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/runc").touch()
    packages = Packages(tmp_path)
    assert packages.program("runc") == tmp_path / "usr/sbin/runc"
    environment = packages.environment()
    assert environment["PATH"].split(":")[0] == str(tmp_path / "links")
    assert environment["LD_LIBRARY_PATH"].startswith(str(tmp_path))
    with pytest.raises(ClusterError, match="hold no containerd"):
        packages.program("containerd")


TARGETS = """\
http://security.example bookworm-security main
http://mirror.example/debian bookworm contrib
http://mirror.example/debian bookworm main
"""


@pytest.mark.parametrize(
    ("suite", "found"),
    [("bookworm", ["http://mirror.example/debian"]), ("trixie", [])],
    ids=["a suite that apt knows", "another one: debootstrap takes Debian's own mirror"],
)
def test_a_suite_comes_from_the_mirror_that_apt_uses(suite, found, monkeypatch):
    monkeypatch.setattr(debian.shutil, "which", lambda command: command)
    monkeypatch.setattr(
        debian.subprocess, "run", lambda argv, **_: debian.subprocess.CompletedProcess(argv, 0, stdout=TARGETS)
    )
    assert debian.mirror(suite) == found
