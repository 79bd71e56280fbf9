"""Settings of one replica: written as environment variables, read back the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.engine import EngineType
from penstock.api.errors import InvalidSettings
from penstock.api.replica import ReplicaSettings

ENVIRONMENT = {
    "PENSTOCK_BACKEND_NAME": "qwen",
    "PENSTOCK_BACKEND_NAMESPACE": "models",
    "PENSTOCK_BACKEND_UID": "5f0c1f3e",
    "PENSTOCK_ENGINE_TYPE": "VLLM",
    "PENSTOCK_SERVED_NAMES": "qwen,Qwen/Qwen2.5-7B",
    "PENSTOCK_DRAIN_TOKEN_SHA256": "0" * 64,
}

SETTINGS = st.fixed_dictionaries(
    {
        "backend_name": st.just("qwen"),
        "backend_namespace": st.just("models"),
        "backend_uid": st.uuids().map(str),
        "engine_type": st.sampled_from(EngineType),
        "engine_port": st.integers(1, 65535),
        "api_port": st.integers(1, 65535),
        "admin_port": st.integers(1, 65535),
        "served_names": st.lists(st.sampled_from(["a", "b/c", "d:e"]), min_size=1).map(tuple),
        "max_concurrency": st.none() | st.integers(1, 4096),
        "context_length": st.none() | st.integers(1, 2**24),
        "engine_version": st.none() | st.just("0.32.0"),
        "memory_limit_bytes": st.none() | st.integers(1, 2**40),
        "tenants_path": st.none() | st.just("/etc/penstock/tenants"),
        "store_url_path": st.none() | st.just("/etc/penstock/store/url"),
        "lame_duck_seconds": st.integers(0, 600),
        "drain_timeout_seconds": st.integers(0, 7200),
        "drain_token_sha256": st.from_regex(r"\A[0-9a-f]{64}\Z"),
        "policy_path": st.just("/somewhere/policy.json"),
    }
).map(ReplicaSettings.model_validate)


@given(SETTINGS)
def test_what_is_written_is_read_back(replica: ReplicaSettings) -> None:
    assert ReplicaSettings.from_env(replica.to_env()) == replica


def test_defaults_need_not_be_written() -> None:
    replica = ReplicaSettings.from_env({**ENVIRONMENT, "PATH": "/bin"})
    assert replica.served_names == ("qwen", "Qwen/Qwen2.5-7B")
    assert (replica.engine_port, replica.api_port, replica.admin_port) == (8001, 8000, 9901)
    assert replica.max_concurrency is None
    assert replica.policy_path == "/etc/penstock/policy.json"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PENSTOCK_BACKEND_UID", None, "PENSTOCK_BACKEND_UID is missing: write the LLMBackend's metadata.uid"),
        ("PENSTOCK_BACKEND_NAME", "", "PENSTOCK_BACKEND_NAME is wrong"),
        ("PENSTOCK_ENGINE_TYPE", "vllm", "write VLLM or LlamaCpp"),
        ("PENSTOCK_ENGINE_PORT", "tcp://10.0.0.1:80", "PENSTOCK_ENGINE_PORT is wrong"),
        ("PENSTOCK_API_PORT", "70000", "1 to 65535"),
        ("PENSTOCK_SERVED_NAMES", "", "separated by commas"),
        ("PENSTOCK_SERVED_NAMES", "a,,b", "separated by commas"),
        ("PENSTOCK_MAX_CONCURRENCY", "0", "at least 1"),
        ("PENSTOCK_LAME_DUCK_SECONDS", "-1", "0 or more"),
        ("PENSTOCK_DRAIN_TOKEN_SHA256", "abc", "64 lower-case hex digits"),
    ],
)
def test_an_error_names_the_variable_and_what_to_write(name: str, value: str | None, words: str) -> None:
    environment = {key: text for key, text in {**ENVIRONMENT, name: value}.items() if text is not None}
    with pytest.raises(InvalidSettings) as caught:
        ReplicaSettings.from_env(environment)
    assert name in str(caught.value)
    assert words in str(caught.value)


def test_an_error_never_shows_the_value() -> None:
    """Whatever stands in a wrong variable may be a secret in the wrong place."""
    with pytest.raises(InvalidSettings) as caught:
        ReplicaSettings.from_env({**ENVIRONMENT, "PENSTOCK_DRAIN_TOKEN_SHA256": "the-token-itself"})
    assert "the-token-itself" not in str(caught.value)
