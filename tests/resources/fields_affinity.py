"""Fields of `spec.pod.affinity`, which a pod spec takes as they are: each in an affinity that is complete."""

from collections.abc import Iterator
from typing import Any

from tests.resources.fields import Field

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

REQUIREMENT = {"key": "a", "operator": "In", "values": ["b"]}
NODE_TERM = {"matchExpressions": [REQUIREMENT], "matchFields": [{**REQUIREMENT, "key": "metadata.name"}]}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [REQUIREMENT]}
POD_TERM = {
    "topologyKey": "zone",
    "labelSelector": SELECTOR,
    "namespaces": ["n"],
    "namespaceSelector": SELECTOR,
    "matchLabelKeys": ["c"],
    "mismatchLabelKeys": ["d"],
}
PODS = {REQUIRED: [POD_TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": POD_TERM}]}
COMPLETE = {
    "nodeAffinity": {
        REQUIRED: {"nodeSelectorTerms": [NODE_TERM]},
        PREFERRED: [{"weight": 1, "preference": NODE_TERM}],
    },
    "podAffinity": PODS,
    "podAntiAffinity": PODS,
}

OPERATOR = ("operator", "NotIn", "In")
VALUES = ("values[]", "other", "b")
CONDITION = (("key", "other", "a"), OPERATOR, VALUES)
WEIGHT = ("weight", 7, 1)


def _rows(block: str, *fields: tuple[str, Any, Any]) -> Iterator[Field]:
    """Yield fields of one block: each with its name, an example, and what stands in its place without it."""
    for name, value, instead in fields:
        path = f"affinity.{block}.{name}"
        where = path.removesuffix("{}").replace("[]", "[0]")
        within = {"pod": {"affinity": COMPLETE}}
        yield Field(path=f"pod.{path}", value=value, instead=instead, within=within, where=f"pod: {where}", rolls=True)


def _nodes(term: str) -> Iterator[Field]:
    yield from _rows(f"{term}.matchExpressions[]", *CONDITION)
    yield from _rows(f"{term}.matchFields[]", OPERATOR, VALUES)
    key = f"affinity.{term}.matchFields[].key"
    yield Field(
        path=f"pod.{key}",
        value="metadata.name",
        goes_with=f"pod.affinity.{term}.matchFields",
        within={"pod": {"affinity": COMPLETE}},
        where="pod: " + key.replace("[]", "[0]"),
        rolls=True,
    )


def _pods(term: str) -> Iterator[Field]:
    yield from _rows(
        term,
        ("topologyKey", "rack", "zone"),
        ("namespaces[]", "other", "n"),
        ("matchLabelKeys[]", "other", "c"),
        ("mismatchLabelKeys[]", "other", "d"),
    )
    for selector in ("labelSelector", "namespaceSelector"):
        yield from _rows(f"{term}.{selector}", ("matchLabels{}", {"a": "other"}, {"a": "b"}))
        yield from _rows(f"{term}.{selector}.matchExpressions[]", *CONDITION)


AFFINITY = (
    *_nodes(f"nodeAffinity.{REQUIRED}.nodeSelectorTerms[]"),
    *_rows(f"nodeAffinity.{PREFERRED}[]", WEIGHT),
    *_nodes(f"nodeAffinity.{PREFERRED}[].preference"),
    *(
        row
        for kind in ("podAffinity", "podAntiAffinity")
        for row in (
            *_pods(f"{kind}.{REQUIRED}[]"),
            *_rows(f"{kind}.{PREFERRED}[]", WEIGHT),
            *_pods(f"{kind}.{PREFERRED}[].podAffinityTerm"),
        )
    ),
)
