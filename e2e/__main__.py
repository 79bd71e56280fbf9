"""`make e2e`: a cluster, the images, Penstock on it, then the suite, run inside the cluster's own network.

The suite is plain pytest (`e2e/suite`). It runs as a child process in the network of the first node, so a Service's
address and its DNS name work for the official clients as they do for a pod, and no test traffic leaves the cluster.
What the suite measures comes back as one JSON line per row and becomes `results/<target>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.results import Row, exit_status, full_table, write
from e2e import audit, command, images, metricsserver, vllm
from e2e.cache import duration, say
from e2e.cluster import Cluster, ClusterError, open_cluster
from e2e.install import REPOSITORY, install
from e2e.prometheus import server as prometheus

SUITE = REPOSITORY / "e2e" / "suite"
OTHER_SUITES = ("operator", "vllm")
"""Suites with a target of their own: `make e2e-operator` and `make e2e-vllm`."""

ENGINES = {"LlamaCpp": images.llamacpp, "VLLM": images.fakevllm}
"""What serves each engine type in the main suite: real llama.cpp, and the stand-in for vLLM."""


def main(argv: list[str] | None = None) -> int:
    """Run the suite and return the exit status: 0 only when every test passed and every figure meets its bar."""
    options = _parser().parse_args(argv)
    if options.operator and options.driver != "local":
        raise ClusterError("the operator's suite reads the API server's audit log, which only the local driver keeps")
    command.need_root()
    suite = _suite(options)
    target = "-".join(filter(None, ("e2e", options.driver if options.driver != "local" else "", suite)))
    results: list[Row] = []
    engines = (
        {"VLLM": images.vllm_host} if options.vllm else {name: ENGINES[name] for name in options.engine or ENGINES}
    )
    cluster = open_cluster(driver=options.driver, name=options.name or target)
    with tempfile.TemporaryDirectory(prefix="penstock-e2e-") as scratch:
        rows = Path(scratch) / "rows.jsonl"
        rows.touch()
        try:
            references = _prepare(cluster, engines, results)
            status = _run_suite(cluster, references, rows, [*_folders(suite), *options.pytest], _prepared(suite))
        finally:
            if options.keep:
                down = f"python -m e2e.cluster down --driver {options.driver} --name {cluster.name}"
                say(f"the cluster stays up; `{down}` removes it")
            else:
                with _stage(results, "cluster down"):
                    cluster.down()
        results += [Row(**json.loads(line)) for line in rows.read_text().splitlines()]
    print(full_table(results))
    if options.engine or options.pytest:
        say("only a part has run: the figures are not kept")
    else:
        path = write(target, ["python", "-m", "e2e", *(argv or sys.argv[1:])], results)
        say(f"figures in {path}")
    return status or exit_status(results)


def _suite(options: argparse.Namespace) -> str:
    """Return the name of the suite that is asked for, empty for the main one."""
    return "vllm" if options.vllm else "operator" if options.operator else ""


def _folders(suite: str) -> list[str]:
    """Return what pytest is to collect: one suite, without the folders of the others."""
    if suite:
        return [str(SUITE / suite)]
    return [str(SUITE), *(f"--ignore={SUITE / other}" for other in OTHER_SUITES)]


def _prepared(suite: str) -> dict[str, str]:
    """Return what only this suite needs, by variable; tests cannot build it, they run where no proxy is reached."""
    if suite == "vllm":
        return {"PENSTOCK_E2E_VLLM_HOME": str(vllm.folder())}
    if suite == "operator":
        return {
            "PENSTOCK_E2E_METRICS_SERVER": str(metricsserver.binary()),
            "PENSTOCK_E2E_PROMETHEUS": str(prometheus.binary()),
        }
    return {}


def _prepare(cluster: Cluster, engines: dict[str, Callable[[], images.Image]], results: list[Row]) -> dict[str, str]:
    with _stage(results, "images"):
        penstock = images.penstock()
        built = {engine: build() for engine, build in engines.items()}
    with _stage(results, "cluster up"):
        cluster.up()
    with _stage(results, "install"):
        install(cluster, penstock)
    with _stage(results, "engine images to the nodes"):
        for image in built.values():
            cluster.load_image(image.archive)
    return {engine: image.reference for engine, image in built.items()}


def _run_suite(
    cluster: Cluster, references: dict[str, str], rows: Path, arguments: list[str], more: dict[str, str]
) -> int:
    environment = {
        **os.environ,
        **more,
        "PENSTOCK_E2E_IMAGES": json.dumps(references),
        "PENSTOCK_E2E_ROWS": str(rows),
        "PENSTOCK_E2E_KUBECTL": str(cluster.kubectl_path),
        "PENSTOCK_E2E_AUDIT": str(cluster.logs / audit.LOG_NAME),
        "PENSTOCK_E2E_NODES": json.dumps([node.name for node in cluster.nodes]),
        "NO_PROXY": "*",
    }
    argv = [sys.executable, "-m", "pytest", "-v", "--durations=8", *arguments]
    process = cluster.popen(argv, env=environment, cwd=REPOSITORY)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait(timeout=30)
        raise


class _stage:  # noqa: N801 - reads as the statement it is
    """Times one stage, shows it, and keeps it as a row."""

    def __init__(self, results: list[Row], name: str) -> None:
        self.results, self.name = results, name

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, kind: object, *_: object) -> None:
        seconds = time.monotonic() - self.started
        say(f"{self.name}: {'failed after ' if kind else ''}{duration(seconds)}")
        self.results.append(Row(name=f"stage: {self.name}", value=round(seconds, 1), unit="s"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e", description=__doc__.splitlines()[0])
    parser.add_argument("--driver", default="local", choices=["local", "kind"], help="what makes the cluster")
    parser.add_argument("--name", help="the cluster's name; others are left alone (default: the target's)")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--vllm", action="store_true", help="the suite for real vLLM instead (`make engine-vllm` first)")
    other.add_argument("--operator", action="store_true", help="the suite for the operator instead (local driver only)")
    parser.add_argument("--engine", action="append", choices=list(ENGINES), help="only this engine (repeatable)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest, after --")
    return parser


if __name__ == "__main__":
    command.run(main)
