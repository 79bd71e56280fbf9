"""`spec.model`: the names clients send, and where the weights come from."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches
from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import MebibyteCount
from penstock.api.source import MODEL_DIRECTORY, BakedSource, ModelCache, ModelSource, PersistentVolumeClaimSource

__all__ = [
    "MODEL_DIRECTORY",
    "BakedSource",
    "ModelCache",
    "ModelSource",
    "ModelSpec",
    "PersistentVolumeClaimSource",
    "ServedName",
]

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


class ModelSpec(ApiModel):
    """The model: its names and its weights."""

    name: ServedName
    """The name clients send in `model`."""

    aliases: Annotated[tuple[ServedName, ...], Field(max_length=16)] = ()
    """Further names that clients may send."""

    source: ModelSource
    """Where the weights come from."""

    cache: ModelCache | None = None
    """Where a download is kept, with `huggingFace`. Default: on each node's disk, once per replica."""

    size_mebibytes: MebibyteCount | None = None
    """Size of the weights in MiB, from which the time to load them is estimated. Default: unknown."""

    rules = (
        Rule(
            cel="!has(self.cache) || has(self.source.huggingFace)",
            message="`cache` keeps what `source.huggingFace` downloads; remove it",
            holds=lambda model: model.cache is None or model.source.hugging_face is not None,
            field="cache",
        ),
    )

    @property
    def served_names(self) -> tuple[str, ...]:
        """Return all names clients may send, the model's own first, each once."""
        return tuple(dict.fromkeys((self.name, *self.aliases)))
