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
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_MONITOR = Kind("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
CONTROLLER_REVISION = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
POD = Kind("", "v1", "pods", "Pod")
SECRET = Kind("", "v1", "secrets", "Secret")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
EVENT = Kind("", "v1", "events", "Event")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
RESOURCE_QUOTA = Kind("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGE = Kind("", "v1", "limitranges", "LimitRange")

CHILD_KINDS = (
    SERVICE_ACCOUNT,
    CONFIG_MAP,
    SERVICE,
    POD_DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD_MONITOR,
    CONTROLLER_REVISION,
    DEPLOYMENT,
)
"""Everything a backend may own: watched, repaired, and deleted when no longer desired."""

OPTIONAL_KINDS = (POD_MONITOR,)
"""Kinds that not every cluster serves: watched from when they appear."""

_OTHERS = (LLM_BACKEND, POD, SECRET, LEASE, EVENT, PERSISTENT_VOLUME_CLAIM, RESOURCE_QUOTA, LIMIT_RANGE)
_BY_NAME = {(kind.api_version, kind.name): kind for kind in (*CHILD_KINDS, *_OTHERS)}


def kind_of(obj: Object) -> Kind:
    """Return the table's entry for an object; `KeyError` when Penstock does not handle that kind."""
    return _BY_NAME[obj["apiVersion"], obj["kind"]]
