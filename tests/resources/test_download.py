"""The init container that brings a model, and the volume it fills."""

import pytest

from penstock.api.download import DownloadSettings
from penstock.resources import download
from penstock.resources.settings import BuildSettings, Platform

GGUF = {"repository": "acme/tiny-gguf", "file": "tiny.gguf"}
ENGINES = ["LlamaCpp", "VLLM"]


@pytest.fixture
def backend(make_backend):
    def make(engine="LlamaCpp", /, *, cache=None, size=None, pod=None, resources=None, env=(), **source):
        model = {"name": "m", "source": {"huggingFace": {**GGUF, **source}}}
        model |= {"cache": cache} if cache else {}
        model |= {"sizeMebibytes": size} if size else {}
        spec = {"model": model}
        spec |= {"pod": pod} if pod else {}
        spec |= {"resources": resources} if resources else {}
        if env:
            spec["engine"] = {"type": engine, "image": "engine:b11434", "env": list(env)}
        return make_backend(engine, **spec)

    return make


@pytest.fixture
def container(settings):
    def make(one):
        return download.init_container(one, settings)

    return make


def environment(container):
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def volume(one, name="penstock-model"):
    return next(dict(volume) for volume in download.volumes(one) if volume["name"] == name)


@pytest.mark.parametrize(
    "source", [{"baked": {"path": "/m"}}, {"persistentVolumeClaim": {"claimName": "c", "path": "/m.gguf"}}]
)
def test_a_model_that_is_there_needs_no_download(make_backend, settings, source):
    one = make_backend(model={"name": "m", "source": source})
    assert download.init_container(one, settings) is None
    assert download.volumes(one) == []
    assert download.engine_mounts(one) == []


def test_the_container_reads_what_was_written_for_it(backend, container):
    made = container(backend(revision="v1.0", endpoint="http://hub.example:8080", tokenSecretRef={"name": "hub"}))
    found = DownloadSettings.from_env(environment(made))
    assert (found.repository, found.revision, found.file) == ("acme/tiny-gguf", "v1.0", "tiny.gguf")
    assert found.endpoint == "http://hub.example:8080"
    assert found.token_path == "/etc/penstock/hub/token"
    assert found.volume == "/model"


def test_it_runs_penstock_to_its_end(backend, container):
    made = container(backend())
    assert (made["name"], made["image"], made["command"]) == ("download", "penstock:1", ["penstock", "download"])
    assert "restartPolicy" not in made
    assert made["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("engine", ENGINES)
def test_it_writes_where_the_engine_reads(backend, container, engine):
    one = backend(engine)
    made = container(one)
    (mount,) = download.engine_mounts(one)
    assert mount["readOnly"]
    assert mount["mountPath"] == "/model"
    assert mount["subPath"] == DownloadSettings.from_env(environment(made)).folder
    assert {"name": mount["name"], "mountPath": "/model"} in made["volumeMounts"]
    assert one.spec.model.source.path_in_container == "/model/tiny.gguf"


@pytest.mark.parametrize("engine", ENGINES)
def test_it_runs_as_the_engine_does(backend, template, engine):
    pod = template(backend(engine))["spec"]
    made = next(one for one in pod["initContainers"] if one["name"] == "download")
    assert made["securityContext"] == pod["containers"][0]["securityContext"]
    assert made["securityContext"]["readOnlyRootFilesystem"]


def test_it_runs_before_the_limiter(backend, template):
    assert [one["name"] for one in template(backend())["spec"]["initContainers"]] == ["download", "limiter"]


def test_volumes_and_mounts_reach_the_pod(backend, template):
    one = backend(tokenSecretRef={"name": "hub"})
    pod = template(one)["spec"]
    names = [volume["name"] for volume in pod["volumes"]]
    assert len(names) == len(set(names))
    assert {volume["name"] for volume in download.volumes(one)} <= set(names)
    assert download.engine_mounts(one)[0] in pod["containers"][0]["volumeMounts"]


def test_openshift_chooses_the_user(backend):
    settings = BuildSettings(limiter_image="penstock:1", drain_key=b"k" * 32, platform=Platform.OPENSHIFT)
    made = download.init_container(backend(), settings)
    assert "runAsUser" not in made["securityContext"]


def test_the_token_is_mounted_into_the_download_alone(backend, template):
    pod = template(backend(tokenSecretRef={"name": "hub", "key": "hf"}))["spec"]
    (token,) = [volume for volume in pod["volumes"] if "secret" in volume]
    assert token["secret"] == {"secretName": "hub", "items": [{"key": "hf", "path": "token"}], "defaultMode": 0o440}
    users = [
        one["name"]
        for one in pod["initContainers"] + pod["containers"]
        if token["name"] in {mount["name"] for mount in one["volumeMounts"]}
    ]
    assert users == ["download"]


@pytest.mark.parametrize(
    ("cache", "size", "source"),
    [
        ({"persistentVolumeClaim": {"claimName": "models"}}, None, {"persistentVolumeClaim": {"claimName": "models"}}),
        (None, None, {"emptyDir": {}}),
        (None, 700, {"emptyDir": {"sizeLimit": "1400Mi"}}),
    ],
    ids=["claim", "nothing", "size"],
)
def test_the_cache_decides_the_volume(backend, cache, size, source):
    assert volume(backend(cache=cache, size=size)) == {"name": "penstock-model", **source}


@pytest.mark.parametrize("storage_class", [None, "fast"])
def test_an_ephemeral_cache_is_a_claim_of_the_pod(backend, storage_class):
    given = {"sizeMebibytes": 500} | ({"storageClassName": storage_class} if storage_class else {})
    claim = volume(backend(cache={"ephemeral": given}))["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"] == {"requests": {"storage": "500Mi"}}
    assert claim["accessModes"] == ["ReadWriteOnce"]
    assert claim.get("storageClassName") == storage_class


def test_a_claim_that_the_user_mounts_too_is_one_volume(backend, container):
    """A kubelet waits for ever for the second of two volumes of one pod that are the same claim."""
    one = backend(
        cache={"persistentVolumeClaim": {"claimName": "models"}},
        pod={"volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "models"}}]},
    )
    assert "penstock-model" not in {volume["name"] for volume in download.volumes(one)}
    assert download.engine_mounts(one)[0]["name"] == "mine"
    assert {"name": "mine", "mountPath": "/model"} in container(one)["volumeMounts"]


def test_it_takes_cpu_and_memory_of_the_engine_and_no_accelerator(backend, container):
    resources = {
        "requests": {"cpu": "2", "memory": "8Gi"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"},
    }
    made = container(backend(resources=resources))
    assert made["resources"] == {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}


def test_it_reaches_the_outside_as_the_engine_is_told_to(backend, container):
    env = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "OMP_NUM_THREADS", "value": "2"}]
    found = environment(container(backend(env=env)))
    assert found["HTTPS_PROXY"] == "http://proxy:3128"
    assert "OMP_NUM_THREADS" not in found


@pytest.mark.parametrize(
    "change",
    [{"repository": "acme/other"}, {"revision": "v2"}, {"file": "other.gguf"}, {"endpoint": "http://mirror.example"}],
    ids=lambda change: next(iter(change)),
)
def test_another_request_is_another_folder(backend, change):
    before, after = (download.engine_mounts(one)[0]["subPath"] for one in (backend(), backend(**change)))
    assert before != after
    assert before.startswith("acme--tiny-gguf-")


def test_vllm_asks_no_hub_itself(backend, template):
    pod = template(backend("VLLM"))["spec"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in pod["containers"][0]["env"]
