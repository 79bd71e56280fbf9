"""`python -m e2e.vllm prepare` and `python -m e2e.vllm serve -- FLAGS`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from e2e import cache
from e2e.vllm import build, serve


def main() -> int:
    """Run one of the two commands and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.vllm", description="Real vLLM on the CPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="build it if it is not there, print its folder")
    served = commands.add_parser("serve", help="serve the made-up model on 127.0.0.1")
    served.add_argument("flags", nargs=argparse.REMAINDER, help="flags of vllm serve, after --")
    arguments = parser.parse_args()
    try:
        folder = build.folder()
    except build.PrepareError as error:
        print(f"e2e.vllm: {error}", file=sys.stderr)
        return 1
    if arguments.command == "prepare":
        size = subprocess.run(["du", "-sm", folder], check=True, capture_output=True, text=True).stdout.split()[0]
        cache.say(f"vLLM {build.VLLM_VERSION}: {size} MiB, mounted at {build.HOME} in pods")
        print(folder)
        return 0
    flags = [flag for flag in arguments.flags if flag != "--"]
    with tempfile.TemporaryDirectory(prefix="penstock-vllm-") as home:
        words = serve.command(folder, flags=["--host", "127.0.0.1", *flags])
        return subprocess.run(words, env={**os.environ, **serve.environment(Path(home))}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
