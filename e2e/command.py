"""How a command line of `e2e` ends: what a person can act on is a sentence and an exit status, no traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

from e2e.cache import say
from e2e.cluster import ClusterError
from e2e.images import ImageBuildError
from e2e.vllm.build import PrepareError

FAILED, INTERRUPTED = 1, 130


def need_root() -> None:
    """Refuse to go on without root, before anything is built that would be of no use.

    Raises:
        ClusterError: This is another user.
    """
    if os.geteuid() != 0:
        raise ClusterError("clusters and images need namespaces, mounts and debootstrap: run this as root")


def run(main: Callable[[], int], *, when_interrupted: str = "interrupted") -> NoReturn:
    """Run a command line and exit with its status.

    Args:
        main: The command line; its own result is the status.
        when_interrupted: What to say after Ctrl-C, such as how to remove what is up.
    """
    try:
        sys.exit(main())
    except (ClusterError, ImageBuildError, PrepareError) as error:
        say(f"failed: {error}")
        sys.exit(FAILED)
    except subprocess.CalledProcessError as error:
        command = error.cmd if isinstance(error.cmd, str) else shlex.join(map(str, error.cmd))
        told = str(error.stderr or error.output or "").strip()
        say(f"failed with exit status {error.returncode}: {command}" + (f"\n{told}" if told else ""))
        sys.exit(FAILED)
    except KeyboardInterrupt:
        say(when_interrupted)
        sys.exit(INTERRUPTED)
