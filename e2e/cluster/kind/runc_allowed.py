"""An OCI runtime for Docker: runc, less the capabilities that this machine does not have.

`docker run --privileged` and `docker exec --privileged`, both used by kind, ask for every capability the kernel knows.
Where the daemon's own bounding set lacks one, as in many containers and virtual machines, runc refuses the whole
process. This program drops the missing ones from the process description that Docker wrote and then becomes runc.

It runs once for every container and exec, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# In the kernel's order: the position is the bit in /proc/PID/status.
_NAMES = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
"""
CAPABILITIES = tuple(f"CAP_{name}" for name in _NAMES.split())


def bounding_set(status: str) -> frozenset[str]:
    """Return the capabilities in the bounding set that a `/proc/PID/status` text shows."""
    (bits,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:"))
    return frozenset(name for bit, name in enumerate(CAPABILITIES) if bits >> bit & 1)


def without_missing(process: dict[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    """Return an OCI process description whose capability sets hold only what is allowed."""
    sets: dict[str, Iterable[str] | None] = process.get("capabilities") or {}
    return process | {
        "capabilities": {kind: [one for one in names or () if one in allowed] for kind, names in sets.items()}
    }


def process_file(arguments: list[str]) -> tuple[Path, str | None] | None:
    """Return the file in which these runc arguments describe a process, and the key it has there.

    Returns:
        None for a command that starts no process; key None where the whole file is the description.
    """
    if "create" in arguments or "run" in arguments:
        return Path(_option(arguments, "--bundle", "-b") or ".") / "config.json", "process"
    described = _option(arguments, "--process", "-p")
    if "exec" in arguments and described:
        return Path(described), None
    return None


def _option(arguments: list[str], *names: str) -> str | None:
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else "".join(arguments[position + 1 : position + 2]) or None
    return None


def trim(path: Path, key: str | None, allowed: frozenset[str]) -> None:
    """Rewrite the process description in `path` without capabilities that are not allowed."""
    document = json.loads(path.read_text())
    if key is None:
        document = without_missing(document, allowed)
    elif document.get(key):
        document[key] = without_missing(document[key], allowed)
    path.write_text(json.dumps(document))


def main(arguments: list[str]) -> None:
    """Trim what the arguments point to and become runc with the same arguments."""
    found = process_file(arguments)
    if found:
        trim(*found, bounding_set(Path("/proc/self/status").read_text()))
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
