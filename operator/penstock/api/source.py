"""`spec.model.source` and `spec.model.cache`: where the weights come from, and where a download is kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches
from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import AbsolutePath, ImageReference, KeyName, MebibyteCount, ObjectName, RelativePath

MODEL_DIRECTORY = "/model"
"""Where a model that is not part of the engine image appears in the engine container."""


class TokenSecretReference(ApiModel):
    """One key of a Secret in the backend's namespace that holds a token."""

    name: ObjectName
    """Name of the Secret."""

    key: KeyName = "token"
    """Key in it that holds the token. Default: `token`."""


class HuggingFaceSource(ApiModel):
    """A repository of the Hugging Face Hub, downloaded before the engine starts."""

    repository: Annotated[
        str,
        Field(max_length=193),
        Matches(
            r"^([A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9_][A-Za-z0-9_.-]*$",
            "must be owner/name, such as Qwen/Qwen2.5-7B-Instruct",
        ),
    ]
    """The repository, as `owner/name`."""

    revision: Annotated[
        str,
        Field(max_length=128),
        Matches(r"^[A-Za-z0-9_]([A-Za-z0-9_.-]|/[A-Za-z0-9_])*$", "must be a branch, a tag or a commit, such as main"),
    ] = "main"
    """Branch, tag or commit; a commit never changes under you. Default: main."""

    file: RelativePath | None = None
    """One file of it, such as `model-q8_0.gguf`; llama.cpp needs it. Default: all files that the engine reads."""

    token_secret_ref: TokenSecretReference | None = None
    """Secret with a token, for private repositories; only the download sees it."""

    endpoint: (
        Annotated[
            str,
            Field(max_length=512),
            Matches(
                r"^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?$",
                "must be a URL without credentials, such as https://huggingface.co",
            ),
        ]
        | None
    ) = None
    """URL of the hub or of a mirror. Default: https://huggingface.co."""


class PersistentVolumeClaimSource(ApiModel):
    """A model in a PersistentVolumeClaim of the backend's namespace, mounted read-only."""

    claim_name: ObjectName
    """Name of the claim."""

    path: AbsolutePath
    """Where the model lies, from the claim's root (`/` is the root itself): a GGUF file or a folder."""


class ImageSource(ApiModel):
    """A model in an OCI image, mounted read-only; needs Kubernetes 1.35, or 1.33 with the feature switched on."""

    reference: ImageReference
    """The image."""

    path: AbsolutePath = "/"
    """Where the model lies in the image: a GGUF file for llama.cpp, a folder for vLLM. Default: `/`."""


class BakedSource(ApiModel):
    """A model that is part of the engine image."""

    path: AbsolutePath
    """Where the model lies in the image: a GGUF file for llama.cpp, a folder for vLLM."""


class ModelSource(ApiModel):
    """Where the weights come from: exactly one of the fields."""

    hugging_face: HuggingFaceSource | None = None
    """A repository of the Hugging Face Hub."""

    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A model in a PersistentVolumeClaim."""

    image: ImageSource | None = None
    """A model in an OCI image."""

    baked: BakedSource | None = None
    """A model inside the engine image."""

    rules = (
        Rule(
            cel=(
                "[has(self.huggingFace), has(self.persistentVolumeClaim), has(self.image), has(self.baked)]"
                ".filter(x, x).size() == 1"
            ),
            message=(
                "write exactly one of `huggingFace`, `persistentVolumeClaim`, `image` and `baked`; "
                "paths of the node are not supported"
            ),
            holds=lambda source: len(source.given) == 1,
        ),
    )

    @property
    def given(self) -> tuple[HuggingFaceSource | PersistentVolumeClaimSource | ImageSource | BakedSource, ...]:
        """Return the sources that are given; in a valid object exactly one."""
        sources = (self.hugging_face, self.persistent_volume_claim, self.image, self.baked)
        return tuple(source for source in sources if source is not None)

    @property
    def path(self) -> str:
        """Return the path of the model inside its source; `/` for a whole repository."""
        (source,) = self.given
        if isinstance(source, HuggingFaceSource):
            return f"/{source.file or ''}"
        return source.path

    @property
    def path_in_container(self) -> str:
        """Return where the engine finds the model: below `/model`, unless the engine image holds it."""
        if self.baked is not None:
            return self.baked.path
        return (MODEL_DIRECTORY + self.path).rstrip("/")


class ClaimCache(ApiModel):
    """A PersistentVolumeClaim of the backend's namespace."""

    claim_name: ObjectName
    """Name of the claim. Replicas on several nodes need one that several nodes can mount."""


class EphemeralCache(ApiModel):
    """A volume made for each replica; it lives as long as the replica."""

    storage_class_name: ObjectName | None = None
    """StorageClass. Default: the cluster's."""

    size_mebibytes: MebibyteCount
    """Size in MiB; the whole model must fit."""


class ModelCache(ApiModel):
    """Where a download is kept: exactly one of the fields."""

    persistent_volume_claim: ClaimCache | None = None
    """A claim that all replicas share: the model is downloaded once."""

    ephemeral: EphemeralCache | None = None
    """A volume of each replica's own, for models that do not fit on the node's disk."""

    rules = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.ephemeral)",
            message="write exactly one of `persistentVolumeClaim` and `ephemeral`",
            holds=lambda cache: (cache.persistent_volume_claim is None) != (cache.ephemeral is None),
        ),
    )
