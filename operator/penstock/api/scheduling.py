"""Where replicas may run, and as whom: the parts of a pod template that clusters with GPUs need, typed and pruned."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from penstock.api.base import ApiModel, Rule
from penstock.api.labels import LabelKey, LabelValue

UserId = Annotated[int, Field(ge=1, le=2147483647, json_schema_extra={"format": "int64"})]
GroupId = Annotated[int, Field(ge=1, le=2147483647, json_schema_extra={"format": "int64"})]


class TolerationOperator(StrEnum):
    """How a toleration is compared with a taint."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A taint that replicas put up with."""

    key: LabelKey | None = None
    """Key of the taint; left out, every key (with `operator: Exists`)."""

    operator: TolerationOperator = TolerationOperator.EQUAL
    """`Equal` (default) or `Exists`."""

    value: LabelValue | None = None
    """Value of the taint, with `operator: Equal`."""

    effect: TaintEffect | None = None
    """Effect of the taint. Default: every effect."""

    toleration_seconds: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """How long a replica stays after the taint appears, with `effect: NoExecute`. Default: for ever."""

    rules = (
        Rule(
            cel="has(self.key) || self.operator == 'Exists'",
            message="without `key` write `operator: Exists`",
            holds=lambda one: one.key is not None or one.operator is TolerationOperator.EXISTS,
            field="operator",
        ),
        Rule(
            cel="!has(self.value) || self.operator == 'Equal'",
            message="`value` belongs to `operator: Equal`; remove it",
            holds=lambda one: one.value is None or one.operator is TolerationOperator.EQUAL,
            field="value",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            message="`tolerationSeconds` belongs to `effect: NoExecute`",
            holds=lambda one: one.toleration_seconds is None or one.effect is TaintEffect.NO_EXECUTE,
            field="tolerationSeconds",
        ),
    )


class WhenUnsatisfiable(StrEnum):
    """What happens to a replica that would be one too many."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class NodeInclusion(StrEnum):
    """Whether nodes are filtered before replicas are counted."""

    HONOR = "Honor"
    IGNORE = "Ignore"


class TopologySpreadConstraint(ApiModel):
    """How this backend's replicas are spread; the selector is filled in."""

    topology_key: LabelKey
    """Label of nodes whose values are the places, such as `topology.kubernetes.io/zone`."""

    max_skew: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many replicas one place may have more than another. Default: 1."""

    when_unsatisfiable: WhenUnsatisfiable = WhenUnsatisfiable.SCHEDULE_ANYWAY
    """`ScheduleAnyway` (default) or `DoNotSchedule`."""

    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Places that must exist, with `DoNotSchedule`."""

    node_affinity_policy: NodeInclusion | None = None
    """Whether nodes that the pod cannot use are left out: `Honor` (the cluster's default) or `Ignore`."""

    node_taints_policy: NodeInclusion | None = None
    """Whether tainted nodes are left out: `Honor` or `Ignore` (the cluster's default)."""

    rules = (
        Rule(
            cel="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
            message="`minDomains` belongs to `whenUnsatisfiable: DoNotSchedule`",
            holds=lambda one: one.min_domains is None or one.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE,
            field="minDomains",
        ),
    )


class SELinuxOptions(ApiModel):
    """SELinux context of the pod."""

    level: Annotated[str, Field(max_length=253)] | None = None
    """Level, such as `s0:c123,c456`."""

    role: Annotated[str, Field(max_length=253)] | None = None
    """Role."""

    type: Annotated[str, Field(max_length=253)] | None = None
    """Type."""

    user: Annotated[str, Field(max_length=253)] | None = None
    """User."""


class GroupChangePolicy(StrEnum):
    """When the owner of a volume's files is changed."""

    ON_ROOT_MISMATCH = "OnRootMismatch"
    ALWAYS = "Always"


class PodSecurityContext(ApiModel):
    """As whom the engine runs. What is left out stays as strict as the `restricted` level asks."""

    run_as_user: UserId | None = None
    """User of the engine; never root. Default: 2000, or the namespace's on OpenShift."""

    run_as_group: GroupId | None = None
    """Group of the engine. Default: 2000, or the namespace's on OpenShift."""

    fs_group: GroupId | None = None
    """Group that owns the volumes. Default: 2000, or the namespace's on OpenShift."""

    fs_group_change_policy: GroupChangePolicy | None = None
    """`OnRootMismatch` starts faster on volumes with many files. Default: `Always`."""

    supplemental_groups: Annotated[tuple[GroupId, ...], Field(max_length=16)] = ()
    """Further groups of the engine."""

    se_linux_options: SELinuxOptions | None = None
    """SELinux context of the pod."""
