"""Secrets reach the limiter as files, and nobody else."""

import pytest

from penstock.api.replica import ReplicaSettings
from penstock.resources import secrets
from tests.resources.pods import engine_of, environment, limiter_of, volume_at

WITH_SECRETS = {
    "tenants": {"keysSecretRef": {"name": "keys"}},
    "admission": {"sharedStore": {"redis": {"secretRef": {"name": "store", "key": "valkey-url"}}}},
}


@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_the_limiter_finds_them_where_it_is_told(make_backend, template, engine):
    rendered = template(make_backend(engine, **WITH_SECRETS))
    limiter = limiter_of(rendered)
    told = ReplicaSettings.from_env(environment(limiter))
    assert volume_at(rendered, limiter, told.tenants_path)["secret"] == {"secretName": "keys"}
    folder, _, file = told.store_url_path.rpartition("/")
    assert volume_at(rendered, limiter, folder)["secret"] == {
        "secretName": "store",
        "items": [{"key": "valkey-url", "path": file}],
    }


@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_nobody_else_in_the_pod_sees_them(make_backend, template, engine):
    hub = {"name": "m", "source": {"huggingFace": {"repository": "o/m", "file": "m.gguf"}}}
    rendered = template(make_backend(engine, model=hub, **WITH_SECRETS))
    ours = {secrets.TENANTS_VOLUME, secrets.STORE_VOLUME}
    others = [engine_of(rendered), *(one for one in rendered["spec"]["initContainers"] if one["name"] != "limiter")]
    assert len(others) == 2
    for container in others:
        assert not ours & {mount["name"] for mount in container["volumeMounts"]}


def test_they_are_files_and_never_variables(make_backend, template):
    entries = limiter_of(template(make_backend(**WITH_SECRETS)))["env"]
    assert not any("secretKeyRef" in entry.get("valueFrom", {}) for entry in entries)


def test_they_are_mounted_read_only(make_backend):
    assert all(mount["readOnly"] for mount in secrets.mounts(make_backend(**WITH_SECRETS)))


@pytest.mark.parametrize(
    "spec",
    [{}, {"tenants": {"default": {}}}, {"admission": {"sharedStore": {"redis": {"url": "redis://r:6379"}}}}],
    ids=["none named", "tenants without keys", "a store without a password"],
)
def test_a_backend_without_secrets_mounts_none(make_backend, template, spec):
    backend = make_backend(**spec)
    assert secrets.volumes(backend) == []
    told = ReplicaSettings.from_env(environment(limiter_of(template(backend))))
    assert (told.tenants_path, told.store_url_path) == (None, None)
