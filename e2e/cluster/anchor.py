"""The first process of a node: it holds the node's namespaces, and everything in the node lives and dies with it.

Run as a script by `node.py` as process 1 of fresh pid, mount, network and host name namespaces:

    anchor.py HOSTNAME PRIVATE_FOLDER

A node on a shared machine writes to places that have one fixed name: /run/containerd, /var/lib/cni,
/var/lib/kubelet/device-plugins, /var/log/containers. The anchor gives it a /run of its own and overlays on /var/lib and
/var/log, in a mount namespace whose changes never reach the machine. All other folders are the machine's own, so
hostPath volumes work.

When the anchor ends, however it ends, the kernel kills every process of the pid namespace, and with the last process go
the mounts and network devices. Removing a node therefore needs no list of what the node did.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

OVERLAID = ("/var/lib", "/var/log")


def main(hostname: str, private: Path) -> None:
    """Prepare the namespaces, say so by a file `ready`, and reap orphans until told to stop."""
    signals = {signal.SIGCHLD, signal.SIGTERM}
    # Process 1 ignores a signal that it does not wait for, so both are blocked and waited for.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # Mounts of the machine come in, mounts of the node stay in, and pods may share theirs with the node.
    run("mount", "--make-rslave", "/")
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for folder in OVERLAID:
        upper, work = private / folder[1:] / "upper", private / folder[1:] / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        run("mount", "-t", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", "overlay", folder)
    socket.sethostname(hostname)
    run("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    (private / "ready").touch()
    while signal.sigwait(signals) == signal.SIGCHLD:
        reap()


def run(*argv: str) -> None:
    """Run a command; its own message is the explanation when it fails."""
    # The signal mask is inherited, and a command that cannot be stopped is no good.
    done = subprocess.run(argv, check=False, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, set()))
    if done.returncode != 0:
        sys.exit(f"`{' '.join(argv)}` failed with status {done.returncode}")


def reap() -> None:
    """Collect every process that ended and has no other parent."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
