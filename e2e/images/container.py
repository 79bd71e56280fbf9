"""Runs a command in an image as strictly as a cluster would: read-only root, numeric user, of the host only /dev.

The layers of the archive itself are unpacked, so what is tried is what nodes receive. A mount and a process namespace
of its own make everything vanish with the command.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from e2e.images.archive import Image, member

NOBODY = "65532:65532"
WHITEOUT = ".wh."


@dataclass(frozen=True)
class Container:
    """An image unpacked into a folder, ready to run commands."""

    root: Path
    config: dict[str, Any]

    def run(self, *argv: str, user: str = NOBODY, timeout_seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the image's entrypoint with arguments, as `docker run --read-only --tmpfs /tmp IMAGE argv...`."""
        return self.execute(*(self.config.get("Entrypoint") or ()), *argv, user=user, timeout_seconds=timeout_seconds)

    def execute(self, *argv: str, user: str = NOBODY, timeout_seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command instead of the entrypoint, in the image's environment and working directory."""
        inside = ["chroot", f"--userspec={user}", str(self.root), "/usr/bin/env", "-i"]
        inside += [f"--chdir={self.config.get('WorkingDir') or '/'}", *(self.config.get("Env") or ()), *argv]
        root = shlex.quote(str(self.root))
        script = (
            f"mount --bind {root} {root} && mount -t proc proc {root}/proc && mount -t tmpfs tmpfs {root}/tmp && "
            f"chmod 1777 {root}/tmp && mount --rbind /dev {root}/dev && mount -o remount,bind,ro {root} && "
            f"{shlex.join(inside)}; exit 0"
        )
        # The shell stays, as process 1 of the namespace and as root: when it is killed, all processes in there end. A
        # program that took its place would not get that signal after the change of its user.
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )


@contextmanager
def unpacked(image: Image) -> Iterator[Container]:
    """Give the image as a container; its folder is removed afterwards."""
    with TemporaryDirectory(prefix="penstock-container-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        with tarfile.open(image.archive) as tar:
            manifest = json.load(member(tar, "manifest.json"))[0]
            config = json.load(member(tar, manifest["Config"]))["config"]
            for name in manifest["Layers"]:
                _apply(tar, name, root)
        for mounted in ("proc", "dev", "tmp"):
            (root / mounted).mkdir(exist_ok=True)
        yield Container(root=root, config=config)


def _apply(tar: tarfile.TarFile, name: str, root: Path) -> None:
    # GNU tar as a child knows links, owners and modes of a root file system; Python's filters refuse absolute links.
    with tarfile.open(fileobj=member(tar, name)) as layer:
        for entry in layer:
            path = Path(entry.name)
            if path.name.startswith(WHITEOUT):
                hidden = root / path.parent / path.name.removeprefix(WHITEOUT)
                subprocess.run(["rm", "-rf", str(hidden)], check=True)
    unpack = ["tar", "--extract", "--numeric-owner", "--same-permissions", f"--exclude={WHITEOUT}*", "-C", str(root)]
    with subprocess.Popen(unpack, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        source = member(tar, name)
        while chunk := source.read(1 << 20):
            process.stdin.write(chunk)
        process.stdin.close()
    if process.returncode != 0:
        raise tarfile.ReadError(f"tar cannot unpack layer {name}")
