"""The hash of the pod-relevant spec: what changes it, what must not, now and in releases to come."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from penstock.api.backend import LLMBackend, LLMBackendSpec
from penstock.resources.facts import UNKNOWN
from penstock.resources.pod import template
from penstock.resources.settings import BuildSettings
from penstock.rollout import podspec
from penstock.rollout.podspec import NOT_POD_BOUND, POD_BOUND_BELOW, pod_spec, pod_spec_hash

SETTINGS = BuildSettings(limiter_image="penstock:1", drain_key=b"k" * 32)
STORED = json.loads((Path(__file__).parent / "stored.json").read_text())


def parse(spec, **metadata):
    metadata = {"name": "smol", "namespace": "team", "uid": "u", **metadata}
    return LLMBackend.parse(
        {"apiVersion": "serving.penstock.dev/v1alpha1", "kind": "LLMBackend", "metadata": metadata, "spec": spec}
    )


def llama(**spec):
    return {
        "engine": {"type": "LlamaCpp", "image": "llama.cpp:server-b11434"},
        "model": {"name": "m", "source": {"baked": {"path": "/m.gguf"}}},
        **spec,
    }


def vllm(**spec):
    return {
        "engine": {"type": "VLLM", "image": "vllm/vllm-openai:v0.18.0"},
        "model": {"name": "m", "source": {"persistentVolumeClaim": {"claimName": "models", "path": "/m"}}},
        **spec,
    }


def hash_of(spec):
    return pod_spec_hash(parse(spec))


def merged(base, patch):
    """Return the spec with a patch laid over it, block by block."""
    if not (isinstance(base, dict) and isinstance(patch, dict)):
        return copy.deepcopy(patch)
    return {key: merged(base.get(key), patch.get(key, base.get(key))) for key in {*base, *patch}}


@pytest.mark.parametrize("name", STORED)
def test_the_hash_of_an_object_that_was_stored_by_an_earlier_release_never_changes(name):
    """A failure here means: every backend of this kind would roll when Penstock is upgraded.

    A default that has changed belongs into `FIRST_DEFAULTS`; nothing in stored.json is ever edited.
    """
    assert pod_spec_hash(LLMBackend.parse(STORED[name]["object"])) == STORED[name]["hash"]


POD_CHANGES = {
    "image": {"engine": {"image": "llama.cpp:server-b11500"}},
    "version": {"engine": {"version": "b11500"}},
    "an argument": {"engine": {"args": ["--mlock"]}},
    "a variable": {"engine": {"env": [{"name": "A", "value": "1"}]}},
    "context": {"engine": {"contextLength": 8192}},
    "slots": {"engine": {"maxConcurrency": 8}},
    "tuning": {"engine": {"llamaCpp": {"threads": 3}}},
    "model name": {"model": {"name": "other"}},
    "alias": {"model": {"aliases": ["other"]}},
    "model path": {"model": {"source": {"baked": {"path": "/other.gguf"}}}},
    "resources": {"resources": {"limits": {"memory": "1Gi"}}},
    "a volume": {"pod": {"volumes": [{"name": "v", "emptyDir": {}}]}},
    "limiter image": {"limiter": {"image": "other"}},
    "limiter resources": {"limiter": {"resources": {"limits": {"memory": "512Mi"}}}},
    "lame duck": {"drain": {"lameDuckSeconds": 3}},
    "drain time": {"drain": {"timeoutSeconds": 3}},
    "startup time": {"health": {"startupTimeoutSeconds": 77}},
    "the store's Secret": {"admission": {"sharedStore": {"redis": {"secretRef": {"name": "s"}}}}},
    "the tenants' Secret": {"tenants": {"keysSecretRef": {"name": "s"}}},
}


@pytest.mark.parametrize("change", POD_CHANGES.values(), ids=POD_CHANGES)
def test_a_change_that_reaches_pods_changes_the_hash(change):
    assert hash_of(merged(llama(), change)) != hash_of(llama())


OTHER_CHANGES = {
    "replicas": {"replicas": 7},
    "suspend": {"suspend": True},
    "paused": {"paused": True},
    "service": {"service": {"port": 81, "annotations": {"a": "b"}}},
    "log level": {"limiter": {"logLevel": "Debug"}},
    "body cap": {"limiter": {"maximumBodyMebibytes": 64}},
    "admission": {"admission": {"mode": "Shadow", "concurrency": {"maximum": 3}}},
    "the store's address": {"admission": {"sharedStore": {"redis": {"url": "redis://r:6379/0"}}}},
    "tenants": {"tenants": {"identifyBy": "ClientAddress"}},
    "resilience": {"resilience": {"retries": {"maximum": 0}}},
    "stall": {"health": {"stallTimeoutSeconds": 61}},
    "warm-up": {"health": {"warmup": "Chat"}},
    "disruption": {"disruption": {"budget": "Disabled"}},
    "rollout": {"rollout": {"strategy": "InPlace"}},
    "upgrade policy": {"upgradePolicy": "Rolling"},
    "monitoring": {"monitoring": {"podMonitor": "Disabled"}},
    "network policy": {"networkPolicy": "Enabled"},
}


@pytest.mark.parametrize("change", OTHER_CHANGES.values(), ids=OTHER_CHANGES)
def test_a_change_that_does_not_reach_pods_changes_neither_hash_nor_template(change):
    before, after = parse(llama()), parse(merged(llama(), change))
    assert after.spec != before.spec, "the change changes nothing"
    assert pod_spec_hash(after) == pod_spec_hash(before)
    assert template(after, SETTINGS, UNKNOWN) == template(before, SETTINGS, UNKNOWN)


def paths(model, prefix=""):
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        yield path
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from paths(inner, f"{path}.")


def test_the_declaration_names_fields_that_exist():
    assert set(paths(LLMBackendSpec)) >= NOT_POD_BOUND | POD_BOUND_BELOW


def test_values_that_equal_their_default_are_left_out():
    written = llama(
        replicas=1,
        drain={"lameDuckSeconds": 10, "timeoutSeconds": 300},
        limiter={
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "logLevel": "Info",
        },
        resources={"requests": {}, "limits": {}},
        pod={"volumes": [], "volumeMounts": []},
    )
    assert hash_of(written) == hash_of(llama())


def test_a_block_counts_by_its_presence_where_absence_is_the_default():
    assert hash_of(merged(llama(), {"engine": {"llamaCpp": {}}})) != hash_of(llama())


def test_limits_taken_away_from_the_limiter_are_a_change():
    assert hash_of(llama(limiter={"resources": {}})) != hash_of(llama())


def test_the_order_of_keys_means_nothing_and_the_order_of_lists_does():
    limits = {"memory": "1Gi", "cpu": "1"}
    backwards = dict(reversed(limits.items()))
    assert hash_of(llama(resources={"limits": limits})) == hash_of(llama(resources={"limits": backwards}))
    assert hash_of(merged(llama(), {"engine": {"args": ["--a", "--b"]}})) != hash_of(
        merged(llama(), {"engine": {"args": ["--b", "--a"]}})
    )


def test_defaults_inside_the_entries_of_lists_are_left_out_too():
    entry = {"name": "v", "emptyDir": {}}
    backend = parse(llama(pod={"volumes": [entry]}))
    assert pod_spec(backend)["pod.volumes"] == [{"pod.volumes[].name": "v", "pod.volumes[].emptyDir": {}}]


def test_the_hash_is_the_same_for_backends_that_differ_in_name_only():
    assert pod_spec_hash(parse(llama(), name="a")) == pod_spec_hash(parse(llama(), name="b", uid="v"))


def test_a_default_that_a_release_changes_is_named_with_its_former_value(monkeypatch):
    """From here on 10 is no longer the default; the API server has written it into every object of before."""
    without = pod_spec(parse(llama()))
    monkeypatch.setattr(podspec, "FIRST_DEFAULTS", {"drain.lameDuckSeconds": 20})
    assert pod_spec(parse(llama(drain={"lameDuckSeconds": 20}))) == without
    assert pod_spec(parse(llama(drain={"lameDuckSeconds": 10}))) == {**without, "drain.lameDuckSeconds": 10}


@st.composite
def specs(draw):
    """Return specs made of the changes above."""
    spec = llama()
    for change in draw(st.lists(st.sampled_from([*POD_CHANGES.values(), *OTHER_CHANGES.values()]), max_size=4)):
        spec = merged(spec, change)
    # Two sources of one thing are refused by the API; the last one wins here.
    redis = spec.get("admission", {}).get("sharedStore", {}).get("redis", {})
    if len(redis) == 2:
        redis.pop("url")
    tenants = spec.get("tenants", {})
    if len(tenants) == 2:
        tenants.pop("identifyBy")
    return spec


@given(specs(), specs())
def test_equal_hashes_mean_equal_templates(one, other):
    """So a template that is kept for its hash is never the wrong one."""
    a, b = parse(one), parse(other)
    if pod_spec_hash(a) == pod_spec_hash(b):
        assert template(a, SETTINGS, UNKNOWN) == template(b, SETTINGS, UNKNOWN)
