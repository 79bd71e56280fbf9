"""The operator's rights are exact: in the audit log none of its calls was denied, and none of its rights was unused.

Shown for both scopes of the chart, the whole cluster and listed namespaces, each time from a fresh installation under
the ServiceAccount as shipped, through a life that needs every right: children made, repaired and removed, pods that
cannot start, and pods that are refused for each of the reasons that the operator looks into.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import yaml

from e2e.audit import AuditLog, Call
from e2e.install import NAMESPACE, OPERATOR, RELEASE, Installation
from e2e.suite.backends import SPECS, wait_until
from penstock.runtime import drainkey, pushkey

Kubectl = Callable[..., Any]
Object = dict[str, Any]

USER = f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"
SERVED, QUOTA, LIMITS, SECURITY = NAMESPACES = ("rbac-served", "rbac-quota", "rbac-limits", "rbac-security")
SCOPES = {"cluster": [], "namespaces": list(NAMESPACES)}
USED_SECONDS = 90
"""How long may pass until every right has been used: a backend becomes ready in the meantime."""

LOOK_SECONDS = 1.0
"""Between two looks at the log, which is read whole each time."""

POD_MONITORS: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""The kind without its schema: enough for it to be served."""

CHILD_RESOURCES = (
    *("configmaps", "controllerrevisions", "deployments", "networkpolicies", "poddisruptionbudgets"),
    *("podmonitors", "serviceaccounts", "services"),
)
NOT_COPIED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


@dataclass(frozen=True, order=True)
class Right:
    """One thing that a rule allows.

    Attributes:
        name: The only object it is allowed on; empty means any.
    """

    group: str
    resource: str
    name: str
    verb: str


INSIDE_ADMISSION = Right("serving.penstock.dev", "llmbackends/finalizers", "", "update")
"""Asked for by the API server itself when a child is written with `blockOwnerDeletion`, so no call shows it."""


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """The suite's own, which is put back at the end."""
    found = Installation()
    yield found
    found.install()


@pytest.fixture
def bare_cluster(installation: Installation, kubectl: Kubectl) -> Iterator[None]:
    """No Penstock and nothing of it, the kind PodMonitor, and namespaces, in three of which something refuses pods."""
    installation.uninstall()
    # A former operator that ends has lost its rights already.
    kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", f"app.kubernetes.io/name={OPERATOR}")
    made = (f"secret/{drainkey.SECRET_NAME}", f"secret/{pushkey.SECRET_NAME}", f"lease/{OPERATOR}")
    kubectl("-n", NAMESPACE, "delete", *made, "--ignore-not-found")
    hard = {"hard": {"pods": "0"}}
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Mi"}}]}
    objects = [
        POD_MONITORS,
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES),
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "no-pods", "namespace": QUOTA},
            "spec": hard,
        },
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "tiny", "namespace": LIMITS}, "spec": limits},
    ]
    apply(kubectl, *objects)
    kubectl("label", "namespace", SECURITY, "pod-security.kubernetes.io/enforce=restricted")
    yield
    installation.uninstall()
    kubectl("delete", "namespace", *NAMESPACES, "--timeout=120s")
    kubectl("delete", "crd", POD_MONITORS["metadata"]["name"])


@pytest.mark.parametrize("watched", SCOPES.values(), ids=SCOPES)
def test_no_call_is_denied_and_no_right_is_left_unused(
    installation: Installation,
    audit_log: AuditLog,
    engine_images: dict[str, str],
    bare_cluster: None,  # noqa: ARG001
    kubectl: Kubectl,
    record: Callable[..., None],
    watched: list[str],
) -> None:
    start = audit_log.position()
    installation.install(watchNamespaces=watched)
    live_through_everything(kubectl, engine_images)
    rights = granted(installation.run("get", "manifest", RELEASE)) - {INSIDE_ADMISSION}

    def unused() -> list[Right]:
        time.sleep(LOOK_SECONDS)
        return sorted(rights - {right for call in audit_log.calls(start, user=USER) for right in needed(call)})

    left = unused()
    deadline = time.monotonic() + USED_SECONDS
    while left and time.monotonic() < deadline:
        left = unused()
    calls = audit_log.calls(start, user=USER)
    denied = sorted({(call.verb, call.path, call.code) for call in calls if call.denied})
    scope = "listed namespaces" if watched else "whole cluster"
    record(f"calls of the operator, {scope}", len(calls))
    record(f"calls denied, {scope}", len(denied), bar="0", holds=not denied)
    record(f"rights unused, {scope}", len(left), unit=f"of {len(rights)}", bar="0", holds=not left)
    assert denied == []
    assert left == []
    if watched:
        assert {call.namespace for call in calls if call.resource} == {*watched, NAMESPACE}


def granted(manifest: str) -> set[Right]:
    """Return what the rules in a release's manifest allow the operator."""
    roles = [obj for obj in yaml.safe_load_all(manifest) if obj and obj["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles if "aggregate-to" not in str(role["metadata"]["labels"]) for rule in role["rules"]]
    parts = ("apiGroups", "resources", "names", "verbs")
    return {
        Right(*right)
        for rule in rules
        for right in itertools.product(*({**rule, "names": rule.get("resourceNames", [""])}[part] for part in parts))
    }


def needed(call: Call) -> set[Right]:
    """Return the rights that a call has used, by rules for one object and by rules for any."""
    verbs = {call.verb}
    if call.verb == "patch" and call.code == 201:
        # A server-side apply that makes the object is asked for both.
        verbs.add("create")
    return {Right(call.group, call.resource, name, verb) for name in ("", call.name) for verb in verbs}


def live_through_everything(kubectl: Kubectl, images: Mapping[str, str]) -> None:
    """Bring about every situation that the operator reacts to."""
    backend = partial(backend_on, *next(iter(images.items())))
    missing_secret = {
        "volumes": [{"name": "absent", "secret": {"secretName": "absent"}}],
        "volumeMounts": [{"name": "absent", "mountPath": "/absent"}],
    }
    missing_claim = {
        "volumes": [{"name": "absent", "persistentVolumeClaim": {"claimName": "absent"}}],
        "volumeMounts": [{"name": "absent", "mountPath": "/absent"}],
    }
    everything: Object = {"replicas": 2, "networkPolicy": "Enabled", "monitoring": {"podMonitor": "Enabled"}}
    apply(
        kubectl,
        backend(SERVED, "everything", **everything),
        backend(SERVED, "no-secret", pod=missing_secret),
        backend(SERVED, "no-claim", pod=missing_claim),
        backend(QUOTA, "refused"),
        backend(LIMITS, "refused"),
        backend(SECURITY, "refused", pod={"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    )
    wait_reason(kubectl, "refused", QUOTA, "QuotaExceeded")
    # The same thing said twice is one Event that counts.
    for _ in range(2):
        apply(kubectl, backend(QUOTA, "refused", args=["$(EXTRA)"]))
        wait_reason(kubectl, "refused", QUOTA, "InvalidSpec")
        apply(kubectl, backend(QUOTA, "refused"))
        wait_reason(kubectl, "refused", QUOTA, "QuotaExceeded")
    for resource in CHILD_RESOURCES:
        leave_a_copy(kubectl, resource, "everything")
        # A child without the label is out of the watch: its name seems free, is not, and the child is read.
        selector = "serving.penstock.dev/backend=everything"
        kubectl("-n", SERVED, "label", resource, "-l", selector, "app.kubernetes.io/managed-by-")


def leave_a_copy(kubectl: Kubectl, resource: str, owner: str) -> None:
    """Copy a child of a backend under another name, as a restored backup might: the operator has to remove it."""
    selector = f"serving.penstock.dev/backend={owner}"

    def found() -> list[Object]:
        return list(json.loads(kubectl("-n", SERVED, "get", resource, "-l", selector, "-o", "json").stdout)["items"])

    wait_until(lambda: bool(found()), timeout=60, what=lambda: f"{resource} of {owner}")
    copy = found()[0]
    copy.pop("status", None)
    kept = {name: value for name, value in copy["metadata"].items() if name not in NOT_COPIED}
    copy["metadata"] = {**kept, "name": f"copy-of-{kept['name']}"}
    for field in ("clusterIP", "clusterIPs"):
        copy.get("spec", {}).pop(field, None)
    if copy["kind"] == "Deployment":
        # Its pods must not be taken for the backend's.
        labels = {"copy": "yes"}
        copy["spec"] |= {"replicas": 0, "selector": {"matchLabels": labels}}
        copy["spec"]["template"]["metadata"]["labels"] = labels
    kubectl("create", "-f", "-", stdin=json.dumps(copy))

    def gone() -> bool:
        name = copy["metadata"]["name"]
        return not kubectl("-n", SERVED, "get", resource, name, "--ignore-not-found", "-o", "name").stdout

    wait_until(gone, timeout=30, what=lambda: f"the copy among {resource} to be removed")


def backend_on(engine: str, image: str, namespace: str, name: str, *, args: Sequence[str] = (), **spec: Any) -> Object:
    """Return a backend on an engine that there is an image for."""
    whole = {**SPECS[engine], **spec}
    whole["engine"] = {**SPECS[engine]["engine"], "image": image, "args": list(args)}
    whole["drain"] = {"lameDuckSeconds": 0, "timeoutSeconds": 1}
    return {
        "apiVersion": "serving.penstock.dev/v1alpha1",
        "kind": "LLMBackend",
        "metadata": {"name": name, "namespace": namespace},
        "spec": whole,
    }


def apply(kubectl: Kubectl, *objects: Object) -> None:
    whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(whole))


def wait_reason(kubectl: Kubectl, name: str, namespace: str, reason: str) -> None:
    """Wait until `Ready` gives this reason."""
    path = '{.status.conditions[?(@.type=="Ready")].reason}'

    def said() -> str:
        return str(kubectl("-n", namespace, "get", "llmb", name, "-o", f"jsonpath={path}").stdout)

    wait_until(lambda: said() == reason, timeout=60, what=lambda: f"{name} to say {reason}; it says {said()}")
