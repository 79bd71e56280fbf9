"""What the tests' Prometheus is told: the same as the Prometheus operator makes of a PodMonitor."""

from pathlib import Path
from types import SimpleNamespace

from e2e.prometheus.scrape import scrape_configs, targets

PORT = SimpleNamespace(container_port=9901, name="admin")
MONITOR = {
    "metadata": {"namespace": "team", "name": "smol"},
    "spec": {
        "selector": {"matchLabels": {"a.b/c": "smol"}},
        "podTargetLabels": ["a.b/c"],
        "podMetricsEndpoints": [
            {
                "port": "admin",
                "path": "/metrics",
                "relabelings": [{"sourceLabels": ["__metrics_path__"], "targetLabel": "path"}],
            },
            {"port": "admin", "path": "/engine/metrics"},
        ],
    },
}


def pod(*, address: str | None = "10.0.0.1") -> SimpleNamespace:
    return SimpleNamespace(
        metadata=SimpleNamespace(namespace="team", name="smol-1", labels={"a.b/c": "smol"}),
        spec=SimpleNamespace(
            init_containers=[SimpleNamespace(name="limiter", ports=[PORT])],
            containers=[SimpleNamespace(name="engine", ports=None)],
        ),
        status=SimpleNamespace(pod_ip=address, phase="Running"),
    )


def test_each_endpoint_is_a_job_with_its_path():
    jobs = scrape_configs(MONITOR, Path("/targets.json"))
    assert [(job["job_name"], job["metrics_path"]) for job in jobs] == [
        ("podMonitor/team/smol/0", "/metrics"),
        ("podMonitor/team/smol/1", "/engine/metrics"),
    ]


def test_jobs_keep_what_the_monitor_selects_and_name_it():
    rules = scrape_configs(MONITOR, Path("/targets.json"))[0]["relabel_configs"]
    kept = {rule["source_labels"][0]: rule["regex"] for rule in rules if rule.get("action") == "keep"}
    assert kept == {
        "__meta_kubernetes_pod_label_a_b_c": "smol",
        "__meta_kubernetes_pod_container_port_name": "admin",
        "__meta_kubernetes_namespace": "team",
    }
    assert {rule["target_label"] for rule in rules if "target_label" in rule} == {
        *("namespace", "container", "pod", "a_b_c", "job", "endpoint", "path")
    }


def test_an_endpoint_s_own_rules_come_last_in_prometheus_spelling():
    first, second = (job["relabel_configs"][-1] for job in scrape_configs(MONITOR, Path("/targets.json")))
    assert first == {"source_labels": ["__metrics_path__"], "target_label": "path"}
    assert second["target_label"] == "endpoint"


def test_each_port_of_a_pod_is_a_target_sidecars_included():
    (found,) = targets([pod()])
    assert found["targets"] == ["10.0.0.1:9901"]
    assert (
        found["labels"].items()
        >= {
            "__meta_kubernetes_pod_name": "smol-1",
            "__meta_kubernetes_pod_container_name": "limiter",
            "__meta_kubernetes_pod_container_port_name": "admin",
            "__meta_kubernetes_pod_label_a_b_c": "smol",
        }.items()
    )


def test_a_pod_without_an_address_is_no_target():
    assert targets([pod(address=None)]) == []
