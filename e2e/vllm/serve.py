"""The command that runs real vLLM on this machine, and the environment it needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

CACHE_GIBIBYTES = 1


def command(folder: Path, model: Path | None = None, *, flags: Sequence[str]) -> list[str]:
    """Return the command line that serves a model, by default the made-up one.

    The interpreter is called directly: the scripts in `bin` name the path in pods.
    """
    serve = [str(folder / "bin" / "python"), "-m", "vllm.entrypoints.cli.main", "serve"]
    return [*serve, str(model or folder / "model"), *flags]


def environment(home: Path) -> dict[str, str]:
    """Return the variables for a server whose writable files go to `home`."""
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIBIBYTES),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
