"""What the limiter may change while it runs: the file `policy.json` of its ConfigMap.

Values that must match the running pod are in `ReplicaSettings` instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, get_args

from pydantic import BaseModel, Field, ValidationError

from penstock.api.admission import AdmissionPolicy, RedisUrl
from penstock.api.base import ApiModel
from penstock.api.errors import InvalidPolicy
from penstock.api.lifecycle import HealthPolicy
from penstock.api.limiter import MAXIMUM_BODY_MEBIBYTES, BodyMebibytes, LogLevel
from penstock.api.resilience import ResilienceSpec
from penstock.api.spec import LLMBackendSpec
from penstock.api.tenants import TenantsPolicy

POLICY_FILE = "policy.json"
MAXIMUM_TRUSTED_KEYS = 8
MOST_FAULTS_TOLD = 10
"""A long list that is wrong in every entry must not fill the log."""

PublicKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$")]
"""32 bytes in base64."""


class Policy(ApiModel):
    """The reloadable part of the limiter's configuration; the defaults are safe built-ins."""

    log_level: LogLevel = LogLevel.INFO
    """How much the limiter logs."""

    maximum_body_mebibytes: BodyMebibytes = MAXIMUM_BODY_MEBIBYTES
    """Largest request body in MiB."""

    admission: AdmissionPolicy = AdmissionPolicy()
    """Who is admitted, who waits and who is refused."""

    shared_store_url: RedisUrl | None = None
    """Where replicas count together, when the URL needs no secret."""

    replicas: Annotated[int, Field(ge=1)] = 1
    """How many replicas share the quotas that are not of one replica."""

    tenants: TenantsPolicy | None = None
    """Who the callers are, and what each may have; absent, all are one tenant."""

    resilience: ResilienceSpec = ResilienceSpec()
    """What is done for a request that the own engine cannot serve."""

    health: HealthPolicy = HealthPolicy()
    """What counts as healthy."""

    trusted_keys: Annotated[tuple[PublicKey, ...], Field(max_length=MAXIMUM_TRUSTED_KEYS)] = ()
    """Ed25519 public keys whose pushes count; only the file's are believed."""

    @classmethod
    def of(cls, spec: LLMBackendSpec, *, trusted_keys: tuple[str, ...] = ()) -> Policy:
        """Return the policy of a backend; the built-in priority classes are written out."""
        store = spec.admission.shared_store
        admission = AdmissionPolicy.model_validate(spec.admission.model_dump())
        return cls(
            log_level=spec.limiter.log_level,
            maximum_body_mebibytes=spec.limiter.maximum_body_mebibytes,
            admission=admission.model_copy(update={"priority_classes": admission.classes}),
            shared_store_url=store.redis.url if store else None,
            replicas=max(1, spec.replicas),
            tenants=TenantsPolicy.model_validate(spec.tenants.model_dump()) if spec.tenants else None,
            resilience=spec.resilience,
            health=HealthPolicy.model_validate(spec.health.model_dump()),
            trusted_keys=trusted_keys,
        )

    @classmethod
    def parse(cls, text: str) -> tuple[Policy, tuple[str, ...]]:
        """Read the file's text and return the policy with the paths of keys this version does not know,
        sorted.

        Raises:
            InvalidPolicy: the text is no JSON object, or a known value is out of range.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidPolicy(f"{POLICY_FILE} is not JSON ({error})") from None
        if not isinstance(values, dict):
            raise InvalidPolicy(f"{POLICY_FILE} must hold a JSON object, not {type(values).__name__}")
        try:
            policy = cls.model_validate_json(text, strict=True, by_name=False)
        except ValidationError as error:
            found = error.errors(include_url=False)
            lines = [f"`{'.'.join(map(str, entry['loc']))}`: {entry['msg']}" for entry in found[:MOST_FAULTS_TOLD]]
            if len(found) > len(lines):
                lines.append(f"and {len(found) - len(lines)} more")
            raise InvalidPolicy(f"{POLICY_FILE}: {'; '.join(lines)}") from None
        return policy, tuple(sorted(_unknown(cls, values)))

    def render(self) -> str:
        """Return the file's text: the same policy always gives the same bytes."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def _unknown(model: type[BaseModel], values: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield the paths of keys that a model and the models in it do not know."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in values.items():
        if key not in fields:
            yield path + key
            continue
        inner = next(_models(fields[key].annotation), None)
        entries = value if isinstance(value, list) else [value]
        for entry in entries:
            if inner is not None and isinstance(entry, dict):
                yield from _unknown(inner, entry, f"{path}{key}.")


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in a field's type: itself, an optional one, or the entries of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
