"""`python -m e2e.cluster up|down|status|shell`: a cluster to play with."""

from __future__ import annotations

import argparse
import json
import os

from tabulate import tabulate

from e2e import command
from e2e.cluster import DRIVERS


def main(argv: list[str] | None = None) -> int:
    """Do what the command line says and return the exit status."""
    options = _parser().parse_args(argv)
    cluster = DRIVERS[options.driver](options.name)
    if options.command == "up":
        cluster.up()
        print(f"try: python -m e2e.cluster shell --name {options.name}   (kubectl and curl work in it)")
    elif options.command == "down":
        cluster.down()
    elif options.command == "status":
        status = cluster.status()
        print(json.dumps(status, indent=2) if options.output == "json" else table(status))
        return 0 if status["up"] else 1
    else:
        shell = options.argv or [os.environ.get("SHELL", "/bin/sh")]
        return cluster.popen(shell, node=options.node).wait()
    return 0


def table(status: dict[str, object]) -> str:
    """Return a cluster's status for people."""
    head = f"{status['name']}: {'up' if status['up'] else 'not up'}"
    parts = status["parts"]
    if not isinstance(parts, list) or not parts:
        return head
    rows = [[part["name"], part["pid"], "running" if part["alive"] else "ended", part["log"]] for part in parts]
    return f"{head}\n{tabulate(rows, headers=['part', 'pid', 'state', 'log'])}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="Real Kubernetes clusters for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("up", "start the cluster and wait until it works"),
        ("down", "remove the cluster and everything that belongs to it, also after a crash"),
        ("status", "show what runs; exit status 0 only if all does"),
        ("shell", "open a shell, or run a command, in the network of a node"),
    ):
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--name", default="e2e", help="the cluster's name; others are left alone")
        one.add_argument("--driver", default="local", choices=list(DRIVERS), help="what makes the cluster")
        if name == "status":
            one.add_argument("-o", "--output", choices=["table", "json"], default="table")
        if name == "shell":
            one.add_argument("--node", help="name of the node, the first one by default")
            one.add_argument("argv", nargs="*", help="a command to run instead of a shell, after --")
    return parser


if __name__ == "__main__":
    command.run(main)
