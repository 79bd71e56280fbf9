"""`python -m e2e.conformance [check | record] [--target vllm|fakevllm|both] [--only TEXT...] [--seed N]`.

`check`, which is what happens without a word, prints a table, writes `results/conformance.json` and exits with 1 when
anything differs. `record` runs real vLLM and replaces the recording.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from e2e import cache
from e2e.conformance import report, suite
from e2e.conformance.targets import Kind

TARGETS: dict[str, tuple[Kind, ...]] = {
    "vllm": ("vllm",),
    "fakevllm": ("fakevllm",),
    "both": ("fakevllm", "vllm"),
}


def main() -> int:
    """Run the suite and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.conformance", description="vLLM and its stand-in, compared.")
    parser.add_argument("verb", choices=("check", "record"), nargs="?", default="check")
    parser.add_argument("--target", choices=TARGETS, default="both")
    parser.add_argument("--only", nargs="+", default=(), help="cases whose name contains one of these")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)), help="for the prompts of the laws")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.verb == "record":
        count = suite.record(only=arguments.only, seed=arguments.seed)
        cache.say(f"recorded {count} cases in {cache.duration(time.monotonic() - began)}")
        return 0
    outcomes: dict[str, list[suite.Outcome]] = {}
    for target in TARGETS[arguments.target]:
        outcomes[target] = suite.check(target, only=arguments.only, seed=arguments.seed)
        cache.say(f"{target}: {len(outcomes[target])} cases, {cache.duration(time.monotonic() - began)} so far")
    cache.say(f"the laws' prompts came from --seed {arguments.seed}")
    command = ["python", "-m", "e2e.conformance", *sys.argv[1:]]
    return report.finish(outcomes, command=command, complete=not arguments.only)


if __name__ == "__main__":
    sys.exit(main())
