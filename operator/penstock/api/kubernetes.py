"""The parts of Kubernetes' own types that an LLMBackend may hold, cut down to what Penstock passes on."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches, MatchingKeys
from penstock.api.base import ApiModel, Rule
from penstock.api.names import DNS_LABEL, KEY, KEY_CHARACTERS, SUBDOMAIN, SUBDOMAIN_CHARACTERS
from penstock.api.quantity import Quantity, amount

ObjectName = Annotated[
    str,
    Field(max_length=SUBDOMAIN_CHARACTERS),
    Matches(
        rf"^{SUBDOMAIN}$",
        "must be an object's name: lower-case letters, digits, `-` and single dots, starting and ending with a "
        "letter or digit",
    ),
]
"""The name of another object in the same namespace, or of one that belongs to no namespace."""

StorageClassName = Annotated[
    str,
    Field(max_length=SUBDOMAIN_CHARACTERS),
    Matches(rf"^({SUBDOMAIN})?$", "must be a StorageClass's name, such as fast, or empty"),
]
"""The name of a StorageClass in a claim; empty asks for a volume without a class."""

LabelName = Annotated[
    str,
    Field(max_length=63),
    Matches(
        rf"^{DNS_LABEL}$",
        "must be lower-case letters, digits and `-`, starting and ending with a letter or digit",
    ),
]
"""A name of something inside an object: a DNS label."""

KeyName = Annotated[
    str,
    Field(max_length=253),
    Matches(
        r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$", "must be a key: letters, digits, `-`, `_` and `.`, not starting with `..`"
    ),
]
"""A key of a ConfigMap or Secret."""

ImageReference = Annotated[
    str,
    Field(max_length=512),
    Matches(
        r"^[A-Za-z0-9]([A-Za-z0-9._/@:-]*[A-Za-z0-9])?$",
        "must be an image, such as registry.example/name:tag",
    ),
]
"""A container image, with tag or digest."""

_SEGMENT = r"(\.{0,2}[^/.\x00-\x1f][^/\x00-\x1f]*|\.{3,})"
"""A part of a path that is neither empty nor `.` nor `..`."""

AbsolutePath = Annotated[
    str,
    Field(max_length=1024),
    Matches(rf"^/$|^(/{_SEGMENT})+/?$", "must be an absolute path without `.` and `..`, such as /models/model.gguf"),
]
"""A path that starts with `/` and has no `.` or `..` in it."""

RelativePath = Annotated[
    str,
    Field(max_length=255),
    Matches(
        r"^[-_A-Za-z0-9]+([./][-_A-Za-z0-9]+)*$",
        "must be a relative path of letters, digits, `-`, `_` and single dots, such as chat/template.jinja",
    ),
]
"""A path that does not start with `/` and has no `..` in it; a simple form, because the rule is run in nested lists."""

MebibyteCount = Annotated[int, Field(ge=1, le=16777216)]


class SecretReference(ApiModel):
    """A Secret of the backend's namespace."""

    name: ObjectName
    """Name of the Secret."""


class SecretKeyReference(ApiModel):
    """One key of a Secret in the backend's namespace."""

    name: ObjectName
    """Name of the Secret."""

    key: KeyName
    """Key in it."""

    optional: bool | None = None
    """Whether the pod starts when the Secret or key is missing. Default: false."""


class ConfigMapKeyReference(ApiModel):
    """One key of a ConfigMap in the backend's namespace."""

    name: ObjectName
    """Name of the ConfigMap."""

    key: KeyName
    """Key in it."""

    optional: bool | None = None
    """Whether the pod starts when the ConfigMap or key is missing. Default: false."""


class FieldReference(ApiModel):
    """One field of the pod."""

    field_path: Annotated[
        str,
        Field(max_length=256),
        Matches(
            r"^(metadata\.(name|namespace|uid|(labels|annotations)\['[^']{1,253}'\])|"
            r"spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?))$",
            "must be a field of the pod, such as metadata.name, status.podIP or metadata.labels['team']",
        ),
    ]
    """Path of the field, such as `metadata.name`."""


class EnvVarSource(ApiModel):
    """Where a variable's value comes from: exactly one of the fields."""

    secret_key_ref: SecretKeyReference | None = None
    """A key of a Secret."""

    config_map_key_ref: ConfigMapKeyReference | None = None
    """A key of a ConfigMap."""

    field_ref: FieldReference | None = None
    """A field of the pod."""

    rules = (
        Rule(
            cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
            message="write exactly one of `secretKeyRef`, `configMapKeyRef` and `fieldRef`",
            holds=lambda source: (
                sum(ref is not None for ref in (source.secret_key_ref, source.config_map_key_ref, source.field_ref))
                == 1
            ),
        ),
    )


class EnvVar(ApiModel):
    """An environment variable."""

    name: Annotated[
        str,
        Field(max_length=128),
        Matches(r"^[A-Za-z_][A-Za-z0-9_]*$", "must be a variable's name: letters, digits and `_`, not a digit first"),
    ]
    """Name of the variable."""

    value: Annotated[str, Field(max_length=4096)] | None = None
    """Its value."""

    value_from: EnvVarSource | None = None
    """Where its value comes from, instead of `value`."""

    rules = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="write `value` or `valueFrom`, not both",
            holds=lambda variable: variable.value is None or variable.value_from is None,
        ),
    )


GPU_RESOURCE_PATTERN = (
    r"^(nvidia\.com/(gpu(\.shared)?|mig-.+)|amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi)$"
)
"""Names of resources that stand for accelerators. Kept short: the API server prices a rule by the pattern's length."""

_GPU_RESOURCE = re.compile(GPU_RESOURCE_PATTERN)


Amounts = Annotated[
    dict[str, Quantity],
    Field(max_length=16),
    MatchingKeys(KEY, "must be a resource such as cpu or nvidia.com/gpu", longest=KEY_CHARACTERS, named=False),
]
"""Amounts by resource name."""


class Resources(ApiModel):
    """Requests and limits of a container."""

    requests: Amounts | None = None
    """What the scheduler reserves, by resource name (`cpu`, `memory`, `nvidia.com/gpu`)."""

    limits: Amounts | None = None
    """The most the container may use, by resource name."""

    def gpus(self) -> dict[str, Decimal]:
        """Return the accelerators asked for, by resource name; amounts of zero left out."""
        counts = {name: amount(text) for name, text in (self.limits or {}).items() if _GPU_RESOURCE.match(name)}
        return {name: count for name, count in counts.items() if count}

    def cpus(self) -> Decimal | None:
        """Return the CPU limit, else the CPU request, in cores; None when neither is given."""
        text = (self.limits or {}).get("cpu") or (self.requests or {}).get("cpu")
        return None if text is None else amount(text)
