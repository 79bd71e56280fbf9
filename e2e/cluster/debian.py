"""etcd, containerd, runc, CNI plugins, iptables and conntrack, taken from Debian's packages without installing them.

Installing a server package starts its daemon, and a machine may hold a version of its own that must stay as it is. So
packages are downloaded with `apt-get download`, unpacked with `dpkg-deb -x` into the cache, and run from there with a
PATH and a library path of their own.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e import cache
from e2e.cluster.errors import ClusterError

ETCD = ("etcd-server",)
NODE = ("containerd", "runc", "containernetworking-plugins", "iptables", "conntrack")

# iptables is one program under many names; the links that Debian makes on installation are made here by hand.
IPTABLES_NAMES = tuple(
    f"{prefix}{suffix}" for prefix in ("iptables", "ip6tables") for suffix in ("", "-save", "-restore")
)


@dataclass(frozen=True)
class Packages:
    """A folder that packages were unpacked into."""

    root: Path

    def program(self, name: str) -> Path:
        """Return the path of a program.

        Raises:
            ClusterError: The packages of this Debian release do not hold it.
        """
        for folder in self._program_folders():
            if (folder / name).exists():
                return folder / name
        raise ClusterError(f"the packages in {self.root} hold no {name}; delete that folder and run this again")

    @property
    def cni_plugins(self) -> Path:
        return self.root / "usr/lib/cni"

    def environment(self) -> dict[str, str]:
        """Return the variables that let a program of these packages, and what it calls, run from here."""
        libraries = self.root / "usr/lib" / f"{platform.machine()}-linux-gnu"
        path = [*map(str, self._program_folders()), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
        return {
            "PATH": ":".join(path),
            "LD_LIBRARY_PATH": str(libraries),
            "XTABLES_LIBDIR": str(libraries / "xtables"),
        }

    def _program_folders(self) -> list[Path]:
        return [self.root / "links", self.root / "usr/sbin", self.root / "usr/bin"]


def unpack(packages: tuple[str, ...]) -> Packages:
    """Return the packages, with those of their dependencies that this machine lacks, unpacked on first use.

    Raises:
        ClusterError: This is no Debian-like machine, or apt fails.
    """
    release = _release()
    key = cache.digest(*packages, release, platform.machine())
    name = f"debian-{packages[0]}"
    return Packages(cache.build(name, key, lambda scratch: _fill(packages, scratch), usually="20 s"))


def _fill(packages: tuple[str, ...], folder: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ClusterError(
            "the local cluster takes etcd, containerd and iptables from Debian packages, and this machine has no apt; "
            "use a Debian or Ubuntu machine or container"
        )
    downloads = folder / "downloads"
    downloads.mkdir()
    try:
        _download(packages, downloads)
    except ClusterError:
        # The package lists are absent or name versions that are gone: one more try with fresh lists.
        _apt("update")
        _download(packages, downloads)
    for archive in sorted(downloads.glob("*.deb")):
        _run("dpkg-deb", "-x", str(archive), str(folder))
    shutil.rmtree(downloads)
    _link_iptables(folder)


def _download(packages: tuple[str, ...], folder: Path) -> None:
    plan = _apt("install", "--simulate", "--no-install-recommends", "--yes", *packages)
    missing = parse_plan(plan)
    # A requested package that is installed already is not in the plan, and may vanish: it is unpacked all the same.
    _apt("download", *sorted({*packages, *missing}), cwd=folder)


def parse_plan(text: str) -> list[str]:
    """Return the names of the packages that `apt-get install --simulate` would install."""
    return re.findall(r"^Inst (\S+)", text, flags=re.MULTILINE)


def _link_iptables(folder: Path) -> None:
    target = folder / "usr/sbin/xtables-nft-multi"
    if not target.exists():
        return
    links = folder / "links"
    links.mkdir()
    for name in IPTABLES_NAMES:
        (links / name).symlink_to("../usr/sbin/xtables-nft-multi")


def mirror(suite: str) -> list[str]:
    """Return the mirror that apt uses for a suite, to be debootstrap's last argument; none leaves it Debian's own."""
    if not shutil.which("apt-get"):
        return []
    wanted = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    listed = subprocess.run(wanted, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        site, _, rest = line.partition(" ")
        if rest == f"{suite} main":
            return [site]
    return []


def _release() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION", "") or platform.freedesktop_os_release()["ID"]
    except OSError:
        return "unknown"


def _apt(*arguments: str, cwd: Path | None = None) -> str:
    return _run("apt-get", *arguments, cwd=cwd)


def _run(*argv: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        reason = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ClusterError(f"`{' '.join(argv)}` failed:\n{reason}\nAre Debian's package mirrors reachable?")
    return done.stdout
