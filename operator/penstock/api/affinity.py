"""`spec.pod.affinity`: Kubernetes' own type with its own rules, so a wrong one is refused before it is used.

Lists are bounded more tightly than in Kubernetes, which bounds none: the API server prices rules by the most that a
list may hold. A selector that is left out and one that is empty differ (no pod, every pod), so neither has a default.

The CRD cannot say a thing once and refer to it, and a selector of labels stands in eight places here. So names are
checked by plain patterns, without a sentence of their own, and the descriptions below stay out of the CRD.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from penstock.api.annotations import MatchingKeys
from penstock.api.base import ApiModel, Rule
from penstock.api.names import DNS_LABEL, KEY, KEY_CHARACTERS, KEY_MESSAGE, LABEL_VALUE, SUBDOMAIN, SUBDOMAIN_CHARACTERS

LabelKey = Annotated[str, Field(max_length=KEY_CHARACTERS, pattern=KEY)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE)]
Labels = Annotated[
    dict[str, LabelValue],
    Field(max_length=32),
    MatchingKeys(KEY, KEY_MESSAGE, longest=KEY_CHARACTERS, named=False),
]
LabelValues = Annotated[tuple[LabelValue, ...], Field(max_length=64)]
MatchKeys = Annotated[tuple[LabelKey, ...], Field(max_length=8)]
Namespace = Annotated[str, Field(max_length=63, pattern=rf"^{DNS_LABEL}$")]
NodeName = Annotated[str, Field(max_length=SUBDOMAIN_CHARACTERS, pattern=rf"^{SUBDOMAIN}$")]
LabelOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
NodeOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
Weight = Annotated[int, Field(ge=1, le=100)]


class KubernetesModel(ApiModel):
    """A type of Kubernetes' own, which `kubectl explain pod.spec.affinity` describes: the CRD does not."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        own = handler.resolve_ref_schema(schema)
        for node in (own, *own["properties"].values()):
            node.pop("description", None)
        return schema


class LabelRequirement(KubernetesModel):
    """A condition on one label."""

    key: LabelKey
    """Label."""

    operator: LabelOperator
    """Comparison."""

    values: LabelValues | None = None
    """Values."""

    rules = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            message="`In` and `NotIn` take `values`, the others none",
            holds=lambda one: (one.operator in {"In", "NotIn"}) == bool(one.values),
            field="values",
        ),
    )


class LabelSelector(KubernetesModel):
    """Pods or namespaces by label; an empty selector is all of them."""

    match_labels: Labels | None = None
    """Labels with these values."""

    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=16)] | None = None
    """Further conditions."""


class PodAffinityTerm(KubernetesModel):
    """Pods, and the places that count as one."""

    topology_key: LabelKey
    """Label of nodes whose values are the places."""

    label_selector: LabelSelector | None = None
    """The pods. Default: none."""

    namespaces: Annotated[tuple[Namespace, ...], Field(max_length=32)] | None = None
    """Their namespaces. Default: the backend's."""

    namespace_selector: LabelSelector | None = None
    """Their namespaces by label."""

    match_label_keys: MatchKeys | None = None
    """Labels whose value is this pod's; they belong to `label_selector`, see `checks`."""

    mismatch_label_keys: MatchKeys | None = None
    """Labels whose value is not this pod's."""


class WeightedPodAffinityTerm(KubernetesModel):
    """A wish about pods."""

    weight: Weight
    """What it counts."""

    pod_affinity_term: PodAffinityTerm
    """The pods."""


class PodAffinity(KubernetesModel):
    """Where other pods run."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodAffinityTerm, ...], Field(max_length=8)] | None
    ) = None
    """Conditions that all hold."""

    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[WeightedPodAffinityTerm, ...], Field(max_length=8)] | None
    ) = None
    """Wishes."""

    def terms(self) -> Iterator[tuple[str, PodAffinityTerm]]:
        """Yield each term with its path."""
        for index, term in enumerate(self.required_during_scheduling_ignored_during_execution or ()):
            yield f"requiredDuringSchedulingIgnoredDuringExecution[{index}]", term
        for index, wish in enumerate(self.preferred_during_scheduling_ignored_during_execution or ()):
            yield f"preferredDuringSchedulingIgnoredDuringExecution[{index}].podAffinityTerm", wish.pod_affinity_term


class NodeRequirement(KubernetesModel):
    """A condition on one label of a node."""

    key: LabelKey
    """Label."""

    operator: NodeOperator
    """Comparison."""

    values: LabelValues | None = None
    """Values."""

    rules = (
        Rule(
            cel=(
                "self.operator in ['Gt', 'Lt'] ? has(self.values) && self.values.size() == 1 : "
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)"
            ),
            message="`In` and `NotIn` take `values`, `Gt` and `Lt` one, the others none",
            holds=lambda one: (
                len(one.values or ()) == 1
                if one.operator in {"Gt", "Lt"}
                else (one.operator in {"In", "NotIn"}) == bool(one.values)
            ),
            field="values",
        ),
    )


class NodeFieldRequirement(KubernetesModel):
    """A condition on the node's name."""

    key: Literal["metadata.name"]
    """Field."""

    operator: Literal["In", "NotIn"]
    """Comparison."""

    values: Annotated[tuple[NodeName, ...], Field(min_length=1, max_length=1)]
    """One name."""


class NodeSelectorTerm(KubernetesModel):
    """Nodes that meet all conditions."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(max_length=16)] | None = None
    """Conditions on labels."""

    match_fields: Annotated[tuple[NodeFieldRequirement, ...], Field(max_length=4)] | None = None
    """Conditions on the name."""


class NodeSelector(KubernetesModel):
    """Nodes that meet one of the terms."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8)]
    """Terms of which one holds."""


class PreferredNodeTerm(KubernetesModel):
    """A wish about nodes."""

    weight: Weight
    """What it counts."""

    preference: NodeSelectorTerm
    """The nodes."""


class NodeAffinity(KubernetesModel):
    """Which nodes are used."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes that can be used."""

    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredNodeTerm, ...], Field(max_length=8)] | None
    ) = None
    """Wishes."""


class Affinity(ApiModel):
    """Which nodes replicas run on, and beside which pods."""

    node_affinity: NodeAffinity | None = None
    """Nodes by label or name; as in a pod."""

    pod_affinity: PodAffinity | None = None
    """Pods to run near to; as in a pod."""

    pod_anti_affinity: PodAffinity | None = None
    """Pods to run away from; as in a pod."""
