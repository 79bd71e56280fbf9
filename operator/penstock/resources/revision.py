"""A ControllerRevision: a pod template that the backend runs or has run, and what it was made from.

Its data can never change: the API server refuses that. The number can, and says in which order revisions were used.
"""

from __future__ import annotations

from penstock.api.backend import LLMBackend
from penstock.resources.labels import metadata
from penstock.resources.objects import Object

MADE_FROM_ANNOTATION = "serving.penstock.dev/made-from"
"""On the Deployment: what its template was made from, so that a lost ControllerRevision can be had back."""


def build(backend: LLMBackend, *, name: str, number: int, pod_spec: str, renderer: str, template: Object) -> Object:
    """Return the ControllerRevision.

    Args:
        backend: Whose template it is.
        name: The revision's name.
        number: Its place in the order of use, 1 or more.
        pod_spec: Hash of the spec that the template was rendered for.
        renderer: Hash of how it was rendered.
        template: The pod template.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata(backend, name),
        "revision": number,
        "data": {"podSpec": pod_spec, "renderer": renderer, "template": template},
    }


def mark(child: Object, *, made_from: str) -> Object:
    """Return a child, which says what its template was made from if it is the Deployment.

    Args:
        child: Any child.
        made_from: What to say.
    """
    if child["kind"] != "Deployment":
        return child
    annotations = {**child["metadata"].get("annotations", {}), MADE_FROM_ANNOTATION: made_from}
    return {**child, "metadata": {**child["metadata"], "annotations": annotations}}
