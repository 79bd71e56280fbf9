"""`spec.model`: the names clients send, and where the weights come from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches
from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import AbsolutePath, ObjectName

MODEL_DIRECTORY = "/model"
"""Where a claim with the model is mounted in the engine container."""

ServedName = Annotated[
    str,
    Field(max_length=128),
    Matches(
        r"^[A-Za-z0-9]([A-Za-z0-9._:/@+-]*[A-Za-z0-9])?$",
        "must be letters, digits and any of `._:/@+-`, starting and ending with a letter or digit, "
        "such as Qwen/Qwen2.5-7B-Instruct",
    ),
]
"""A model's name as clients send it; no spaces or commas, which separate names on command lines."""


class PersistentVolumeClaimSource(ApiModel):
    """A model in a PersistentVolumeClaim of the backend's namespace, mounted read-only."""

    claim_name: ObjectName
    """Name of the claim."""

    path: AbsolutePath
    """Where the model lies, from the claim's root (`/` is the root itself): a GGUF file or a folder."""


class BakedSource(ApiModel):
    """A model that is part of the engine image."""

    path: AbsolutePath
    """Where the model lies in the image: a GGUF file for llama.cpp, a folder for vLLM."""


class ModelSource(ApiModel):
    """Where the weights come from: exactly one of the fields."""

    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A model in a PersistentVolumeClaim."""

    baked: BakedSource | None = None
    """A model inside the engine image."""

    rules = (
        Rule(
            cel="[has(self.persistentVolumeClaim), has(self.baked)].filter(x, x).size() == 1",
            message="write exactly one of `persistentVolumeClaim` and `baked`",
            holds=lambda source: (source.persistent_volume_claim is None) != (source.baked is None),
        ),
    )

    @property
    def path_in_container(self) -> str:
        """Return where the engine finds the model."""
        if self.persistent_volume_claim is not None:
            return (MODEL_DIRECTORY + self.persistent_volume_claim.path).rstrip("/")
        if self.baked is not None:
            return self.baked.path
        raise AssertionError("the rule above allows no model source without a field")


class ModelSpec(ApiModel):
    """The model: its names and its weights."""

    name: ServedName
    """The name clients send in `model`."""

    aliases: Annotated[tuple[ServedName, ...], Field(max_length=16)] = ()
    """Further names that clients may send."""

    source: ModelSource
    """Where the weights come from."""

    @property
    def served_names(self) -> tuple[str, ...]:
        """Return all names clients may send, the model's own first, each once."""
        return tuple(dict.fromkeys((self.name, *self.aliases)))
