"""Every child is what the API server takes and every pod what the level `restricted` admits, in all combinations."""

import functools
import itertools
import warnings

import pytest

from penstock.resources import children, deployment
from penstock.resources.facts import ClusterFacts
from penstock.resources.settings import BuildSettings, Platform
from tests.resources import everything, restricted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

RELEASES = ("1.29", "1.34", "1.37")
NOT_KUBERNETES_OWN = {"PodMonitor"}

COMBINATIONS = [
    pytest.param(engine, model, features, platform, id=f"{engine}, {model}, {features or 'plain'}, {platform}")
    for engine, model, features, platform in itertools.product(
        ("LlamaCpp", "VLLM"), everything.MODELS, ("all features", ""), Platform
    )
]


@pytest.fixture(scope="module", autouse=True)
def schemas_are_parsed_once():
    """The library reads megabytes of schema for every object it is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kubernetes_validate.utils, "schema_contents", functools.cache(kubernetes_validate.utils.schema_contents)
        )
        yield


@pytest.fixture
def built(make_backend):
    def built(engine, model, features, platform):
        settings = BuildSettings(limiter_image="penstock:1", drain_key=b"k" * 32, platform=platform)
        facts = ClusterFacts(pod_monitors=True)
        backend = make_backend(**everything.spec(engine, model, features=bool(features)))
        assert children.check(backend) == []
        return children.build(backend, settings, facts, deployment.template(backend, settings, facts))

    return built


@pytest.mark.parametrize(("engine", "model", "features", "platform"), COMBINATIONS)
@pytest.mark.parametrize("release", RELEASES)
def test_every_child_is_valid_in_every_supported_release(built, engine, model, features, platform, release):
    if model == "image" and release == "1.29":
        # Refused before it is built, see `model.check`.
        release = "1.31"
    for child in built(engine, model, features, platform):
        if child["kind"] not in NOT_KUBERNETES_OWN:
            kubernetes_validate.validate(child, release, strict=True)


@pytest.mark.parametrize(("engine", "model", "features", "platform"), COMBINATIONS)
def test_every_pod_meets_the_restricted_level(built, engine, model, features, platform):
    pod = built(engine, model, features, platform)[-1]["spec"]["template"]["spec"]
    assert restricted.violations(pod) == []


@pytest.mark.parametrize(("engine", "model", "features", "platform"), COMBINATIONS)
def test_every_mount_has_its_volume_and_every_volume_its_mount(built, engine, model, features, platform):
    pod = built(engine, model, features, platform)[-1]["spec"]["template"]["spec"]
    containers = pod["containers"] + pod["initContainers"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == set(volumes)
    assert len(volumes) == len(set(volumes))
    for container in containers:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(paths) == len(set(paths))


@pytest.mark.parametrize("model", everything.MODELS)
@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_openshift_decides_over_users_and_groups(built, engine, model):
    pod = built(engine, model, "", Platform.OPENSHIFT)[-1]["spec"]["template"]["spec"]
    contexts = [pod["securityContext"], *(one["securityContext"] for one in pod["containers"] + pod["initContainers"])]
    for context in contexts:
        assert not context.keys() & {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}
        assert context["runAsNonRoot"] is True


@pytest.mark.parametrize("model", everything.MODELS)
@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_the_engine_and_what_writes_for_it_are_one_user_and_the_limiter_another(built, engine, model):
    pod = built(engine, model, "all features", Platform.KUBERNETES)[-1]["spec"]["template"]["spec"]
    users = {one["name"]: one["securityContext"]["runAsUser"] for one in pod["containers"] + pod["initContainers"]}
    assert users.pop("limiter") not in {0, 1234}
    assert set(users.values()) == {1234}
