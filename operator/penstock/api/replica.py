"""What one replica is told when its pod is made: environment variables written by the builder, read by the limiter.

These values must match the running pod (ports, names, drain times), so they live in the pod template and never change
while the pod runs. `ReplicaSettings` is the one place that knows the variables' names and forms.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from penstock.api.engine import EngineType
from penstock.api.environment import EnvironmentSettings, settings_config
from penstock.api.model import ServedName

ENGINE_PORT = 8001
API_PORT = 8000
ADMIN_PORT = 9901
POLICY_PATH = "/etc/penstock/policy.json"
TENANTS_PATH = "/etc/penstock/tenants"
STORE_PATH = "/etc/penstock/store"
DRAIN_TOKEN_HEADER = "x-penstock-drain-token"  # noqa: S105 - the header's name
PREFIX = "PENSTOCK_"
POD_UID_VARIABLE = PREFIX + "POD_UID"
"""Set by the kubelet, who alone knows it: the template names the field, not the value."""

Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[
    tuple[ServedName, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: tuple(value.split(",")) if isinstance(value, str) else value),
    PlainSerializer(",".join),
]


class ReplicaSettings(EnvironmentSettings):
    """The pod-bound settings of one replica, shared by all replicas of one revision."""

    model_config = settings_config(PREFIX)

    backend_name: Text
    """the LLMBackend's name"""

    backend_namespace: Text
    """the LLMBackend's namespace"""

    backend_uid: Text
    """the LLMBackend's metadata.uid"""

    pod_uid: Text | None = None
    """the pod's metadata.uid; leave it out when unknown"""

    engine_type: EngineType
    """VLLM or LlamaCpp"""

    engine_port: Port = ENGINE_PORT
    """the engine's port on 127.0.0.1, 1 to 65535"""

    api_port: Port = API_PORT
    """the port clients reach, 1 to 65535"""

    admin_port: Port = ADMIN_PORT
    """the port of probes, drain and metrics, 1 to 65535"""

    served_names: Names
    """the names clients may send, separated by commas; the first is the model's name"""

    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    """requests the engine works on at the same time, at least 1; leave it out when unknown"""

    context_length: Annotated[int, Field(ge=1)] | None = None
    """tokens one request may use, at least 1; leave it out when unknown"""

    engine_version: Text | None = None
    """the engine's version; leave it out when unknown"""

    memory_limit_bytes: Annotated[int, Field(ge=1)] | None = None
    """the limiter's memory limit in bytes; leave it out when there is none"""

    lame_duck_seconds: Annotated[int, Field(ge=0)] = 10
    """seconds of lame duck, 0 or more"""

    drain_timeout_seconds: Annotated[int, Field(ge=0)] = 300
    """seconds running requests get to finish, 0 or more"""

    drain_token_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """the SHA-256 of the drain token, 64 lower-case hex digits"""

    policy_path: Text = POLICY_PATH
    """the path of the policy file"""

    tenants_path: Text | None = None
    """the folder with one file per tenant that holds its API keys; leave it out when keys are not asked for"""

    store_url_path: Text | None = None
    """the path of the file with the shared store's URL; leave it out when there is none"""
