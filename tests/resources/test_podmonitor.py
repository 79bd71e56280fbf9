"""The PodMonitor: where the cluster knows the kind, the limiter's metrics and the engine's through it."""

import pytest

from penstock.resources import podmonitor
from penstock.resources.facts import UNKNOWN, ClusterFacts
from tests.resources.pods import limiter_of

SERVED = ClusterFacts(pod_monitors=True)


@pytest.mark.parametrize(
    ("mode", "facts", "made"),
    [
        (None, SERVED, True),
        (None, UNKNOWN, False),
        ("Auto", SERVED, True),
        ("Enabled", SERVED, True),
        ("Enabled", UNKNOWN, False),
        ("Disabled", SERVED, False),
        ("Disabled", UNKNOWN, False),
    ],
    ids=[
        "by default, where the kind is served",
        "not by default elsewhere",
        "Auto is the default",
        "where asked for",
        "not where asked for and not served, which would hold everything else up",
        "not where disabled",
        "not where disabled and not served",
    ],
)
def test_it_is_made(make_backend, mode, facts, made):
    backend = make_backend(**({"monitoring": {"podMonitor": mode}} if mode else {}))
    assert (podmonitor.build(backend, facts) is not None) is made


def test_it_scrapes_limiter_and_engine_at_a_port_that_the_pod_has(make_backend, template):
    backend = make_backend()
    endpoints = podmonitor.build(backend, SERVED)["spec"]["podMetricsEndpoints"]
    assert [endpoint["path"] for endpoint in endpoints] == ["/metrics", "/engine/metrics"]
    ports = {port["name"]: port["containerPort"] for port in limiter_of(template(backend))["ports"]}
    assert {ports[endpoint["port"]] for endpoint in endpoints} == {9901}


def test_series_tell_the_path_they_come_from(make_backend):
    """Both paths have series of the same name, such as `up`."""
    endpoints = podmonitor.build(make_backend(), SERVED)["spec"]["podMetricsEndpoints"]
    wanted = {"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"}
    assert [endpoint["relabelings"] for endpoint in endpoints] == [[wanted], [wanted]]


def test_series_tell_their_backend(make_backend, template):
    backend = make_backend()
    targets = podmonitor.build(backend, SERVED)["spec"]["podTargetLabels"]
    assert set(targets) <= template(backend)["metadata"]["labels"].keys()


def test_it_selects_the_backend_s_own_replicas(make_backend):
    assert podmonitor.build(make_backend(), SERVED)["spec"]["selector"]["matchLabels"] == {
        "serving.penstock.dev/backend": "smol",
        "app.kubernetes.io/managed-by": "penstock",
    }


def test_labels_by_which_a_prometheus_selects_are_added_to_ours(make_backend):
    built = podmonitor.build(make_backend(monitoring={"labels": {"release": "prometheus"}}), SERVED)
    assert built["metadata"]["labels"]["release"] == "prometheus"
    assert built["metadata"]["labels"]["serving.penstock.dev/backend"] == "smol"
