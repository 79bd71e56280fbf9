"""The kinds Penstock reads or writes, as a table: no discovery requests, and RBAC can be read off it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from penstock.api.backend import GROUP, KIND, PLURAL, VERSION
from penstock.resources.objects import Object


@dataclass(frozen=True, slots=True)
class Kind:
    """Where a kind lives in the API.

    Attributes:
        group: API group; empty for the core group.
        version: API version, `v1`.
        plural: Name in the path, `deployments`.
        name: Name in manifests, `Deployment`.
    """

    group: str
    version: str
    plural: str
    name: str

    @property
    def api_version(self) -> str:
        """`apiVersion` as manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or a subresource; all kinds here are namespaced.

        Args:
            namespace: None spans all namespaces, for lists only.
            name: Object; empty for the collection.
            subresource: `status`; needs a name.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return self.name


LLM_BACKEND = Kind(GROUP, VERSION, PLURAL, KIND)
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
SERVICE = Kind("", "v1", "services", "Service")
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
POD = Kind("", "v1", "pods", "Pod")
SECRET = Kind("", "v1", "secrets", "Secret")

CHILD_KINDS = (SERVICE_ACCOUNT, CONFIG_MAP, SERVICE, DEPLOYMENT)
"""Everything a backend may own: watched, repaired, and deleted when no longer desired."""

_BY_NAME = {(kind.api_version, kind.name): kind for kind in (LLM_BACKEND, *CHILD_KINDS, POD, SECRET)}


def kind_of(obj: Object) -> Kind:
    """Return the table's entry for an object; `KeyError` when Penstock does not handle that kind."""
    return _BY_NAME[obj["apiVersion"], obj["kind"]]
