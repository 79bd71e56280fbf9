"""`make demo`: from nothing to a streamed answer of a real model, on this machine.

Every step is the one a user would take on a cluster of their own, shown as it happens: install the chart, apply an
LLMBackend, wait until it is Ready, ask. Running it again goes on with what is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import yaml

from e2e import command, images
from e2e.cache import duration, say
from e2e.cluster import Cluster, open_cluster
from e2e.install import REPOSITORY, install

NAME = "demo"
EXAMPLE = REPOSITORY / "examples" / "demo.yaml"
PROMPT = "What is the capital of France? Answer in one sentence."
READY_TIMEOUT_SECONDS = 180
LOOK_SECONDS = 0.5


def up(driver: str) -> int:
    """Bring everything up and end with an answer; return the exit status."""
    command.need_root()
    started = time.monotonic()
    penstock, engine = images.penstock(), images.llamacpp()
    cluster = open_cluster(driver=driver, name=NAME)
    cluster.up()
    install(cluster, penstock)
    cluster.load_image(engine.archive)
    backend = yaml.safe_load(EXAMPLE.read_text())
    backend["spec"]["engine"]["image"] = engine.reference
    name, model = backend["metadata"]["name"], backend["spec"]["model"]["name"]
    say(f"applying examples/demo.yaml with image {engine.reference}")
    cluster.kubectl("apply", "-f", "-", input=json.dumps(backend))
    url = _wait_ready(cluster, name)
    say(f"asking {model} through {url}: {PROMPT}")
    chat = cluster.popen([sys.executable, "-m", "e2e.demo.chat", url, model, PROMPT], cwd=REPOSITORY)
    if chat.wait():
        return 1
    print()
    print(cluster.kubectl("get", "llmb", name))
    suffix = "" if driver == "local" else f" CLUSTER={driver}"
    print(f"Up in {duration(time.monotonic() - started)}. Go on:")
    print(f"  make demo-shell{suffix}   a shell with kubectl and the cluster's network; there, for example:")
    print(f"      kubectl describe llmb {name}")
    print(f'      kubectl patch llmb {name} --type merge -p \'{{"spec": {{"replicas": 2}}}}\'')
    hello = [{"role": "user", "content": "Hello"}]
    question = json.dumps({"model": model, "stream": True, "max_tokens": 100, "messages": hello})
    print(f"      curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d '{question}'")
    print(f"  make demo-down{suffix}    remove all of it")
    return 0


def _wait_ready(cluster: Cluster, name: str) -> str:
    """Show how the backend becomes Ready, a line per change; return its address."""
    started, shown = time.monotonic(), ""
    while True:
        status: dict[str, Any] = json.loads(cluster.kubectl("get", "llmb", name, "-o", "json")).get("status", {})
        by_type = {condition["type"]: condition for condition in status.get("conditions", [])}
        ready = by_type.get("Ready", {"status": "Unknown", "reason": "NotSeenYet", "message": ""})
        now = f"Ready={ready['status']} {ready['reason']}: {ready.get('message', '')}"
        if now != shown:
            say(f"{duration(time.monotonic() - started):>8}  {now}")
            shown = now
        if ready["status"] == "True":
            return str(status["url"])
        if "Stalled" in by_type or time.monotonic() - started > READY_TIMEOUT_SECONDS:
            say(cluster.kubectl("get", "pods,events", "-o", "wide"))
            sys.exit(f"[penstock] the backend does not become Ready: {now}")
        time.sleep(LOOK_SECONDS)


def main() -> int:
    """Run `up` or `down`."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["up", "down"])
    parser.add_argument("--driver", default="local", choices=["local", "kind"], help="what makes the cluster")
    options = parser.parse_args()
    if options.command == "up":
        return up(options.driver)
    open_cluster(driver=options.driver, name=NAME).down()
    say("nothing of the demo is left")
    return 0


if __name__ == "__main__":
    command.run(main, when_interrupted="interrupted; `make demo-down` removes what is up")
