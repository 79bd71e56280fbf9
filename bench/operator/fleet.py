"""Many backends at once, and the bare loop that sets the pace: 16 connections that apply and do nothing else."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Iterable, Sequence

import aiohttp

from bench.operator.world import World
from e2e.beside.administrator import APPLY, Object, path
from penstock.api.backend import LLMBackend
from penstock.resources import children, deployment, revision
from penstock.resources.facts import ClusterFacts
from penstock.resources.settings import BuildSettings

CONNECTIONS = 16
API_VERSION = "serving.penstock.dev/v1alpha1"
CHILD_KINDS = ("ServiceAccount", "ConfigMap", "Service", "ControllerRevision", "Deployment")
"""Kinds of the children that each of these backends has; of Services there are two."""

_SETTINGS = BuildSettings(limiter_image="localhost/penstock:bench", drain_key=b"0" * 32)


def backend(namespace: str, name: str, **spec: object) -> Object:
    """Return a small backend."""
    return {
        "apiVersion": API_VERSION,
        "kind": "LLMBackend",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "engine": {"type": "LlamaCpp", "image": "localhost/llamacpp:bench"},
            "model": {"name": "smollm2", "source": {"baked": {"path": "/models/smollm2.gguf"}}},
            **spec,
        },
    }


def backends(namespace: str, count: int, **spec: object) -> list[Object]:
    """Return so many backends."""
    return [backend(namespace, f"b{number:04d}", **spec) for number in range(count)]


def children_of(live: Object) -> list[Object]:
    """Return what the operator makes of a backend as it is stored: every child, and its status at the end."""
    found = LLMBackend.parse(live)
    facts = ClusterFacts()
    template = deployment.template(found, _SETTINGS, facts)
    name = f"{found.metadata.name}-0123456789"
    kept = revision.build(found, name=name, number=1, pod_spec="0" * 10, renderer="0" * 10, template=template)
    return [kept, *children.build(found, _SETTINGS, facts, template, revision=name)]


def statuses(live: Object) -> Object:
    """Return a status of the usual size for a backend that has just got its children."""
    condition = {
        "reason": "Progressing",
        "message": "the children are written, and nothing is known of their replicas yet",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    kinds = (("Ready", "Unknown"), ("Available", "False"), ("Reconciling", "True"))
    meta = live["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": "LLMBackend",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": {
            "observedGeneration": 1,
            "conditions": [{"type": kind, "status": status, **condition} for kind, status in kinds],
            "replicas": 0,
            "readyReplicas": 0,
            "updatedReplicas": 0,
            "selector": "serving.penstock.dev/backend=b0000",
            "url": "http://b0000.default.svc",
        },
    }


def check(world: World, namespace: str, count: int) -> None:
    """Fail unless every child of so many backends is there, and every status: only then does a figure mean anything."""
    for kind in CHILD_KINDS:
        found = len(world.api.list(kind, namespace))
        wanted = count * (2 if kind == "Service" else 1)
        assert found == wanted, f"{found} {kind}s of {wanted}"
    told = [one for one in world.api.list("LLMBackend", namespace) if one.get("status", {}).get("observedGeneration")]
    assert len(told) == count, f"{len(told)} of {count} backends have a status"


def apply_all(world: World, objects: Sequence[Object], *, statuses: Iterable[Object] = ()) -> float:
    """Server-side apply the objects, then the statuses, over 16 connections; return the seconds it took."""
    wanted = [
        (path(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]), one) for one in objects
    ]
    wanted += [
        (path(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) + "/status", one) for one in statuses
    ]
    return asyncio.run(_apply_all(world, wanted))


async def _apply_all(world: World, wanted: Sequence[tuple[str, Object]]) -> float:
    context = ssl.create_default_context(cafile=str(world.plane.authority.certificate))
    context.load_cert_chain(world.plane.certificate.certificate, world.plane.certificate.key)
    pending = iter(wanted)
    query = {"fieldManager": "bare", "force": "true"}

    async def work(session: aiohttp.ClientSession) -> None:
        for target, obj in pending:
            async with session.patch(
                world.plane.server + target, params=query, data=json.dumps(obj), headers={"Content-Type": APPLY}
            ) as answer:
                text = await answer.text()
                assert answer.ok, f"{target}: {answer.status} {text[:500]}"

    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work(session))
        return time.monotonic() - started
