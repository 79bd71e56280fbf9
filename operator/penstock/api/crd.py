"""The CustomResourceDefinition of LLMBackend, generated from the model."""

from __future__ import annotations

from typing import Any

from penstock.api.backend import GROUP, KIND, PLURAL, VERSION, LLMBackend
from penstock.api.schema import Schema, structural

SHORT_NAME = "llmb"
CATEGORY = "penstock"
NAME = f"{PLURAL}.{GROUP}"


def _condition(field: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{field}'


PRINTER_COLUMNS = (
    {"name": "Ready", "type": "string", "jsonPath": _condition("status")},
    {"name": "Reason", "type": "string", "jsonPath": _condition("reason")},
    {"name": "Engine", "type": "string", "jsonPath": ".spec.engine.type"},
    {"name": "Model", "type": "string", "jsonPath": ".spec.model.name"},
    {"name": "Serving", "type": "integer", "jsonPath": ".status.readyReplicas", "description": "Replicas ready."},
    {"name": "Wanted", "type": "integer", "jsonPath": ".spec.replicas", "description": "Replicas wanted."},
    {
        "name": "Limit",
        "type": "integer",
        "jsonPath": ".status.admission.limitPerReplica",
        "description": "Requests in flight that one replica admits.",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "URL", "type": "string", "jsonPath": ".status.url", "priority": 1},
    {"name": "Version", "type": "string", "jsonPath": ".status.engineVersion", "priority": 1},
    {
        "name": "Source",
        "type": "string",
        "jsonPath": ".status.admission.source",
        "description": "Where the signals behind the limits come from.",
        "priority": 1,
    },
)
"""What `kubectl get` shows; priority 1 only with `-o wide`."""


def schema() -> Schema:
    """Return the structural schema of a whole LLMBackend."""
    whole = structural(LLMBackend)
    whole["properties"]["apiVersion"] = {"type": "string"}
    whole["properties"]["kind"] = {"type": "string"}
    # The length is Kubernetes' own; said here, it bounds the cost of the rule about the name.
    whole["properties"]["metadata"] = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}}
    whole["properties"]["status"].pop("default", None)
    whole["required"] = ["spec"]
    return whole


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition as Kubernetes spells it."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": list(PRINTER_COLUMNS),
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": schema()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "penstock"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }
