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
    "Event": "/api/v1/namespaces/{}/events",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "LLMBackend": "/apis/serving.penstock.dev/v1alpha1/namespaces/{}/llmbackends",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/{}/podmonitors",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
}
TIMEOUT_SECONDS = 120
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class Administrator:
    """Requests as a cluster administrator; a refused one is an `AssertionError` with the server's words."""

    def __init__(self, plane: ControlPlane) -> None:
        self._server = plane.server
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cert = (str(plane.certificate.certificate), str(plane.certificate.key))
        self._session.verify = str(plane.authority.certificate)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def request(self, method: str, target: str, **more: Any) -> requests.Response:
        """Send a request and return the answer, whatever it is."""
        return self._session.request(method, self._server + target, timeout=TIMEOUT_SECONDS, **more)

    def path(self, kind: str, namespace: str = "", name: str = "") -> str:
        """Return the path of an object, or of a collection without a name."""
        return path(kind, namespace, name)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        answer = self.request("GET", path(kind, namespace, name))
        return None if answer.status_code == 404 else _object(answer)

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        """Return all objects of a kind in a namespace."""
        return list(_object(self.request("GET", path(kind, namespace)))["items"])

    def create(self, obj: Object) -> Object:
        """Create an object."""
        return _object(self.request("POST", path(obj["kind"], obj["metadata"].get("namespace", "")), json=obj))

    def apply(self, obj: Object, *, manager: str = "kubectl", dry_run: bool = False) -> Object:
        """Server-side apply."""
        target = path(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        query = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        body = json.dumps(obj).encode()
        return _object(self.request("PATCH", target, params=query, headers={"Content-Type": APPLY}, data=body))

    def patch(self, kind: str, namespace: str, name: str, patch: Object, *, subresource: str = "") -> Object:
        """Merge a patch."""
        target = path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        query, body = {"fieldManager": "somebody"}, json.dumps(patch).encode()
        return _object(self.request("PATCH", target, params=query, headers={"Content-Type": MERGE}, data=body))

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object."""
        _object(self.request("DELETE", path(kind, namespace, name)))

    def delete_all(self, kind: str, namespace: str) -> None:
        """Delete all objects of a kind in a namespace, by one request where the kind allows it."""
        answer = self.request("DELETE", path(kind, namespace), params={"propagationPolicy": "Background"})
        if answer.status_code != 405:
            _object(answer)
            return
        for obj in self.list(kind, namespace):
            self.delete(kind, namespace, obj["metadata"]["name"])


def path(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of a collection without a name."""
    return PATHS[kind].format(namespace) + (f"/{name}" if name else "")


def _object(answer: requests.Response) -> Object:
    assert answer.ok, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}"
    return dict(answer.json())
