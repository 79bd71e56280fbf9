"""What an administrator asks of the API server, over plain HTTP: independent of the client that is measured."""

from __future__ import annotations

import json
from typing import Any

import requests

from e2e.cluster.controlplane import ControlPlane

Object = dict[str, Any]

PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "LLMBackend": "/apis/serving.penstock.dev/v1alpha1/namespaces/{}/llmbackends",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
TIMEOUT_SECONDS = 120
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Api:
    """Requests as a cluster administrator; a refused one is an `AssertionError` with the server's words."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cert = (str(plane.certificate.certificate), str(plane.certificate.key))
        self._session.verify = str(plane.authority.certificate)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        answer = self._request("GET", path(kind, namespace, name))
        return None if answer.status_code == 404 else _object(answer)

    def list(self, kind: str, namespace: str) -> list[Object]:
        """Return all objects of a kind in a namespace."""
        return list(_object(self._request("GET", path(kind, namespace)))["items"])

    def apply(self, obj: Object, *, manager: str = "kubectl", dry_run: bool = False) -> Object:
        """Server-side apply."""
        target = path(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        query = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        answer = self._request(
            "PATCH", target, params=query, headers={"Content-Type": APPLY}, data=json.dumps(obj).encode()
        )
        return _object(answer)

    def patch(self, kind: str, namespace: str, name: str, patch: Object, *, subresource: str = "") -> Object:
        """Merge a patch."""
        target = path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        answer = self._request(
            "PATCH",
            target,
            params={"fieldManager": "somebody"},
            headers={"Content-Type": MERGE},
            data=json.dumps(patch).encode(),
        )
        return _object(answer)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object; success when it is not there."""
        answer = self._request("DELETE", path(kind, namespace, name))
        if answer.status_code != 404:
            _object(answer)

    def delete_all(self, kind: str, namespace: str) -> None:
        """Delete all objects of a kind in a namespace, one request, if the kind allows it."""
        answer = self._request("DELETE", path(kind, namespace), params={"propagationPolicy": "Background"})
        if answer.status_code != 405:
            _object(answer)

    def _request(self, method: str, target: str, **more: Any) -> requests.Response:
        return self._session.request(method, self._plane.server + target, timeout=TIMEOUT_SECONDS, **more)


def path(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of a collection without a name."""
    return PATHS[kind].format(namespace) + (f"/{name}" if name else "")


def _object(answer: requests.Response) -> Object:
    assert answer.ok, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}"
    return dict(answer.json())
