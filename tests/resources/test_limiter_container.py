"""The limiter's container: a native sidecar that reads back what the builder wrote."""

import pytest

from penstock.api.replica import POD_UID_VARIABLE, ReplicaSettings
from tests.resources.pods import environment, limiter_of


def test_it_is_a_native_sidecar(make_backend, template):
    assert limiter_of(template(make_backend()))["restartPolicy"] == "Always"


def test_a_failed_probe_ends_it_soon(make_backend, template):
    assert limiter_of(template(make_backend()))["livenessProbe"]["terminationGracePeriodSeconds"] == 5


def test_it_reads_back_what_the_builder_wrote(make_backend, template):
    backend = make_backend(drain={"lameDuckSeconds": 3, "timeoutSeconds": 4})
    read = ReplicaSettings.from_env(environment(limiter_of(template(backend))))
    assert (read.backend_name, read.backend_namespace) == ("smol", "team")
    assert read.served_names == ("smollm2",)
    assert (read.lame_duck_seconds, read.drain_timeout_seconds) == (3, 4)
    assert read.max_concurrency == 4


@pytest.mark.parametrize(
    ("spec", "image"), [({}, "penstock:1"), ({"limiter": {"image": "own:2"}}, "own:2")], ids=["operator's", "own"]
)
def test_its_image(make_backend, template, spec, image):
    assert limiter_of(template(make_backend(**spec)))["image"] == image


def test_a_policy_change_does_not_touch_the_pod(make_backend, template):
    quiet, loud = (make_backend(limiter={"logLevel": level}) for level in ("Info", "Debug"))
    assert template(quiet) == template(loud)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"memory": "256Mi"}, 256 * 2**20), ({"memory": "1G"}, 10**9), ({"cpu": "1"}, None)],
    ids=["binary", "decimal", "no limit"],
)
def test_it_knows_its_memory_limit(make_backend, template, limits, expected):
    backend = make_backend(limiter={"resources": {"limits": limits}})
    read = ReplicaSettings.from_env(environment(limiter_of(template(backend))))
    assert read.memory_limit_bytes == expected


def test_it_is_told_its_pod_by_the_kubelet(make_backend, template):
    entry = limiter_of(template(make_backend()))["env"][-1]
    assert entry["name"] == POD_UID_VARIABLE
    assert entry["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.uid"}


def test_a_template_that_does_not_tell_the_pod_still_works(make_backend, template):
    told = environment(limiter_of(template(make_backend())))
    assert ReplicaSettings.from_env(told).pod_uid is None
    assert ReplicaSettings.from_env({**told, POD_UID_VARIABLE: "u-1"}).pod_uid == "u-1"
