"""What a PodMonitor means to Prometheus, as the Prometheus operator translates it.

`scrape_configs` gives the jobs, one per endpoint of the PodMonitor, and `targets` what Kubernetes' own discovery would
find: one target per container port, with the labels that jobs choose and name their series by. Debian's Prometheus is
built without that discovery, so the targets reach it in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]

META = "__meta_kubernetes_"
OVER = ("Failed", "Succeeded")
_CAPITAL = re.compile(r"[A-Z]")


def scrape_configs(pod_monitor: Mapping[str, Any], targets_file: Path) -> list[Object]:
    """Return the jobs of a PodMonitor that selects by labels and names its ports."""
    meta, spec = pod_monitor["metadata"], pod_monitor["spec"]
    job = f"{meta['namespace']}/{meta['name']}"
    return [
        {
            "job_name": f"podMonitor/{job}/{number}",
            "metrics_path": endpoint["path"],
            "file_sd_configs": [{"files": [str(targets_file)]}],
            "relabel_configs": [*_choice(meta, spec, endpoint), *_names(job, spec, endpoint), *_own(endpoint)],
        }
        for number, endpoint in enumerate(spec["podMetricsEndpoints"])
    ]


def targets(pods: Iterable[Any]) -> list[Object]:
    """Return what discovery tells of these pods (`V1Pod`); those without an address have no targets."""
    return [
        {"targets": [f"{pod.status.pod_ip}:{port.container_port}"], "labels": _labels(pod, container.name, port.name)}
        for pod in pods
        if pod.status.pod_ip
        for container in (*(pod.spec.init_containers or ()), *pod.spec.containers)
        for port in container.ports or ()
    ]


def _labels(pod: Any, container: str, port: str) -> dict[str, str]:
    labels = {
        f"{META}namespace": pod.metadata.namespace,
        f"{META}pod_name": pod.metadata.name,
        f"{META}pod_phase": pod.status.phase,
        f"{META}pod_container_name": container,
        f"{META}pod_container_port_name": port or "",
    }
    for name, value in (pod.metadata.labels or {}).items():
        labels[f"{META}pod_label_{_escaped(name)}"] = value
        labels[f"{META}pod_labelpresent_{_escaped(name)}"] = "true"
    return labels


def _choice(meta: Mapping[str, Any], spec: Mapping[str, Any], endpoint: Mapping[str, Any]) -> list[Object]:
    """Return the rules that say which targets are read."""
    wanted = {f"pod_label_{_escaped(name)}": value for name, value in spec["selector"]["matchLabels"].items()}
    wanted |= {"pod_container_port_name": endpoint["port"], "namespace": meta["namespace"]}
    keep = [
        {"action": "keep", "source_labels": [META + name], "regex": re.escape(value)} for name, value in wanted.items()
    ]
    return [*keep, {"action": "drop", "source_labels": [f"{META}pod_phase"], "regex": "|".join(OVER)}]


def _names(job: str, spec: Mapping[str, Any], endpoint: Mapping[str, Any]) -> list[Object]:
    """Return the rules that name the series."""
    sources = {"namespace": "namespace", "container": "pod_container_name", "pod": "pod_name"}
    sources |= {_escaped(name): f"pod_label_{_escaped(name)}" for name in spec.get("podTargetLabels", ())}
    constants = {"job": job, "endpoint": endpoint["port"]}
    return [
        *({"source_labels": [META + source], "target_label": label} for label, source in sources.items()),
        *({"target_label": label, "replacement": value} for label, value in constants.items()),
    ]


def _own(endpoint: Mapping[str, Any]) -> list[Object]:
    """Return the endpoint's own rules, in Prometheus' spelling."""
    return [
        {_CAPITAL.sub(lambda found: f"_{found.group().lower()}", key): value for key, value in rule.items()}
        for rule in endpoint.get("relabelings", ())
    ]


def _escaped(name: str) -> str:
    """Return a label's name as Prometheus allows it."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
