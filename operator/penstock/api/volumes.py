"""Volumes that users add to the pod: six kinds, each cut down to what Penstock passes on.

A hostPath is none of them: it would tie replicas to nodes and break the `restricted` Pod Security level.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches, MatchingKeys
from penstock.api.base import ApiModel, Rule
from penstock.api.kubernetes import (
    AbsolutePath,
    KeyName,
    ObjectName,
    RelativePath,
    SecretReference,
    StorageClassName,
)
from penstock.api.labels import ForeignAnnotations, ForeignLabels
from penstock.api.names import CSI_DRIVER, CSI_DRIVER_MESSAGE
from penstock.api.quantity import PositiveQuantity, Quantity

FileMode = Annotated[int, Field(ge=0, le=0o777)]
RESERVED_VOLUME_PREFIX = "penstock-"
"""Penstock's own volumes start with it, so a user's volume cannot collide with one."""

_VOLUME_SOURCES = ("persistent_volume_claim", "config_map", "secret", "empty_dir", "csi", "ephemeral")


class KeyToPath(ApiModel):
    """One key of a ConfigMap or Secret as a file."""

    key: KeyName
    """The key."""

    path: RelativePath
    """The file's path in the volume, relative."""

    mode: FileMode | None = None
    """The file's mode as a decimal number (0444 is 292). Default: the volume's."""


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim of the backend's namespace."""

    claim_name: ObjectName
    """Name of the claim."""

    read_only: bool | None = None
    """Mount it read-only. Default: false."""


class ConfigMapVolume(ApiModel):
    """A ConfigMap as files."""

    name: ObjectName
    """Name of the ConfigMap."""

    items: Annotated[tuple[KeyToPath, ...], Field(max_length=32)] | None = None
    """Only these keys, under these paths. Default: all keys."""

    default_mode: FileMode | None = None
    """Mode of the files as a decimal number. Default: 420 (0644)."""

    optional: bool | None = None
    """Whether the pod starts when the ConfigMap is missing. Default: false."""


class SecretVolume(ApiModel):
    """A Secret as files."""

    secret_name: ObjectName
    """Name of the Secret."""

    items: Annotated[tuple[KeyToPath, ...], Field(max_length=32)] | None = None
    """Only these keys, under these paths. Default: all keys."""

    default_mode: FileMode | None = None
    """Mode of the files as a decimal number. Default: 420 (0644)."""

    optional: bool | None = None
    """Whether the pod starts when the Secret is missing. Default: false."""


class EmptyDirMedium(StrEnum):
    """Where an emptyDir lives."""

    DISK = ""
    MEMORY = "Memory"


class EmptyDirVolume(ApiModel):
    """An empty folder that lives as long as the pod."""

    medium: EmptyDirMedium | None = None
    """`Memory` for a RAM disk, which counts against the memory limit. Default: the node's disk."""

    size_limit: Quantity | None = None
    """Most it may hold; the pod is evicted above it."""


class CSIVolume(ApiModel):
    """An inline volume of a CSI driver."""

    driver: Annotated[str, Field(max_length=63), Matches(CSI_DRIVER, CSI_DRIVER_MESSAGE)]
    """Name of the driver."""

    read_only: bool | None = None
    """Mount it read-only. Default: false."""

    fs_type: Annotated[str, Field(max_length=64)] | None = None
    """File system. Default: the driver's."""

    volume_attributes: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=1024)]],
            Field(max_length=32),
            # A longer key cannot be written as YAML, in which children are applied.
            MatchingKeys(r"^[ -~]+$", "keys must be plain characters, at most 253", longest=253, named=False),
        ]
        | None
    ) = None
    """Settings that the driver defines."""

    node_publish_secret_ref: SecretReference | None = None
    """Secret handed to the driver."""


class ClaimTemplateMetadata(ApiModel):
    """Labels and annotations of the claim."""

    labels: ForeignLabels | None = None
    """Labels of the claim."""

    annotations: ForeignAnnotations | None = None
    """Annotations of the claim."""


class AccessMode(StrEnum):
    """How a volume may be mounted."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class StorageSize(ApiModel):
    """Size of a claim's volume."""

    storage: PositiveQuantity
    """Size, such as `10Gi`."""


class ClaimResources(ApiModel):
    """Size that a claim asks for, and the most that it takes."""

    requests: StorageSize
    """Size that is asked for."""

    limits: StorageSize | None = None
    """The largest size. Default: no bound."""


class ClaimTemplateSpec(ApiModel):
    """What the claim asks for."""

    access_modes: Annotated[tuple[AccessMode, ...], Field(min_length=1, max_length=4)]
    """How the volume is mounted, usually `[ReadWriteOnce]`."""

    storage_class_name: StorageClassName | None = None
    """StorageClass; empty for a volume that exists already. Default: the cluster's."""

    resources: ClaimResources
    """Size, as `requests.storage`."""

    rules = (
        Rule(
            cel="self.accessModes.size() == 1 || !('ReadWriteOncePod' in self.accessModes)",
            message="`ReadWriteOncePod` goes with no other mode; remove the others",
            holds=lambda claim: (
                len(claim.access_modes) == 1 or AccessMode.READ_WRITE_ONCE_POD not in claim.access_modes
            ),
            field="accessModes",
        ),
    )


class ClaimTemplate(ApiModel):
    """The claim made for each pod."""

    metadata: ClaimTemplateMetadata | None = None
    """Labels and annotations."""

    spec: ClaimTemplateSpec
    """What the claim asks for."""


class EphemeralVolume(ApiModel):
    """A volume made from a claim that lives as long as the pod."""

    volume_claim_template: ClaimTemplate
    """The claim."""


class Volume(ApiModel):
    """A volume of the pod: a name and exactly one source."""

    name: Annotated[
        str,
        Field(max_length=63),
        Matches(
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "must be lower-case letters, digits and `-`, starting and ending with a letter or digit",
        ),
    ]
    """Name that `volumeMounts` refer to."""

    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim."""

    config_map: ConfigMapVolume | None = None
    """A ConfigMap."""

    secret: SecretVolume | None = None
    """A Secret."""

    empty_dir: EmptyDirVolume | None = None
    """An empty folder."""

    csi: CSIVolume | None = None
    """An inline CSI volume."""

    ephemeral: EphemeralVolume | None = None
    """A volume made for each pod."""

    rules = (
        Rule(
            cel=(
                "[has(self.persistentVolumeClaim), has(self.configMap), has(self.secret), has(self.emptyDir), "
                "has(self.csi), has(self.ephemeral)].filter(x, x).size() == 1"
            ),
            message=(
                "a volume has exactly one of `persistentVolumeClaim`, `configMap`, `secret`, `emptyDir`, `csi` and "
                "`ephemeral`; hostPath and others are not supported"
            ),
            holds=lambda volume: sum(getattr(volume, source) is not None for source in _VOLUME_SOURCES) == 1,
        ),
        Rule(
            cel=f"!self.name.startsWith('{RESERVED_VOLUME_PREFIX}')",
            message=f"names of volumes that start with `{RESERVED_VOLUME_PREFIX}` are Penstock's own; choose another",
            holds=lambda volume: not volume.name.startswith(RESERVED_VOLUME_PREFIX),
            field="name",
        ),
    )


class VolumeMount(ApiModel):
    """A volume in the engine container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of a volume in `pod.volumes`."""

    mount_path: AbsolutePath
    """Where it appears in the engine container."""

    sub_path: RelativePath | None = None
    """A path inside the volume. Default: its root."""

    read_only: bool | None = None
    """Mount it read-only. Default: false."""
