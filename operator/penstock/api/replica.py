"""What one replica is told when its pod is made: environment variables written by the builder, read by the limiter.

These values must match the running pod (ports, names, drain times), so they live in the pod template and never change
while the pod runs. `ReplicaSettings` is the one place that knows the variables' names and forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from penstock.api.engine import EngineType
from penstock.api.errors import InvalidSettings
from penstock.api.model import ServedName

ENGINE_PORT = 8001
API_PORT = 8000
ADMIN_PORT = 9901
POLICY_PATH = "/etc/penstock/policy.json"
DRAIN_TOKEN_HEADER = "x-penstock-drain-token"  # noqa: S105 - the header's name
PREFIX = "PENSTOCK_"

Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[
    tuple[ServedName, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: tuple(value.split(",")) if isinstance(value, str) else value),
    PlainSerializer(",".join),
]


class ReplicaSettings(BaseModel):
    """The pod-bound settings of one replica, shared by all replicas of one revision.

    Each field's text completes the sentence "write ..." of an error message.
    """

    model_config = ConfigDict(
        alias_generator=lambda name: PREFIX + name.upper(),
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    backend_name: Text
    """the LLMBackend's name"""

    backend_namespace: Text
    """the LLMBackend's namespace"""

    backend_uid: Text
    """the LLMBackend's metadata.uid"""

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

    lame_duck_seconds: Annotated[int, Field(ge=0)] = 10
    """seconds of lame duck, 0 or more"""

    drain_timeout_seconds: Annotated[int, Field(ge=0)] = 300
    """seconds running requests get to finish, 0 or more"""

    drain_token_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """the SHA-256 of the drain token, 64 lower-case hex digits"""

    policy_path: Text = POLICY_PATH
    """the path of the policy file"""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ReplicaSettings:
        """Read the settings from environment variables.

        Raises:
            InvalidSettings: names every variable that is missing or wrong, and what to write.
        """
        fields = {PREFIX + name.upper(): field for name, field in cls.model_fields.items()}
        try:
            return cls.model_validate({name: environ[name] for name in fields if name in environ}, by_name=False)
        except ValidationError as error:
            lines = []
            for entry in error.errors(include_url=False):
                name = str(entry["loc"][0])
                state = "is missing" if entry["type"] == "missing" else f"is wrong ({entry['msg']})"
                lines.append(f"{name} {state}: write {fields[name].description}")
            raise InvalidSettings("; ".join(lines)) from None

    def to_env(self) -> dict[str, str]:
        """Return the environment variables, absent ones left out; `from_env` reads them back to an equal object."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {name: str(value) for name, value in values.items()}
