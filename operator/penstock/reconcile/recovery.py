"""Gets a lost template back from the cluster, so that no pod is replaced because a ControllerRevision is missing.

- It is still there and has only lost its labels, so that the watch has lost sight of it: it is read by its name.
- It is gone: the template is read back from the Deployment, which says by an annotation what it was made from.

A Deployment without that annotation was made by a release that kept no templates. If its backend is ready in its
present generation, it runs what that spec asks for, and its template becomes the first revision. If not, the spec may
have changed since, and nothing is had back: the template is rendered anew, and pods are replaced only if it differs.
"""

from __future__ import annotations

import logging

from penstock.kube.client import FIELD_MANAGER, Client
from penstock.kube.errors import NotFound
from penstock.kube.kinds import CONTROLLER_REVISION, DEPLOYMENT, Kind
from penstock.reconcile.turns import annotation
from penstock.resources.deployment import REVISION_ANNOTATION
from penstock.resources.objects import Key, Object, is_controlled_by
from penstock.resources.revision import MADE_FROM_ANNOTATION
from penstock.rollout import applied, revisions
from penstock.rollout.revisions import Revision
from penstock.status.assess import is_ready

_log = logging.getLogger(__name__)


async def recover(client: Client, backend: Object, deployment: Object, *, fresh: Revision) -> Revision | None:
    """Return the revision that the Deployment runs; None when it is of no use for the present spec, or is lost.

    Args:
        client: Reads live.
        backend: The backend as the cache holds it, with its status.
        deployment: Its Deployment as the cache holds it.
        fresh: What would be rendered now, for the present spec.

    Raises:
        KubeError: What has to be read cannot be.
    """
    metadata = backend["metadata"]
    namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
    running = annotation(deployment, REVISION_ANNOTATION)
    pod_spec, _, renderer = annotation(deployment, MADE_FROM_ANNOTATION).partition(".")
    if running:
        if pod_spec != fresh.pod_spec:
            return None
        unseen = await _read(client, CONTROLLER_REVISION, Key(namespace, running), uid)
        found, _ignored = revisions.read([unseen] if unseen else [], backend=name, owner_uid=uid)
        if found:
            return found[0]
    elif not _is_ready_now(backend):
        return None
    live = await _read(client, DEPLOYMENT, Key(namespace, name), uid)
    template = applied.pod_template(live, manager=FIELD_MANAGER) if live is not None else None
    if template is None:
        return None
    _log.info("%s/%s: the template of its revision is read back from its Deployment", namespace, name)
    if not running:
        renderer = fresh.renderer if template == fresh.template else revisions.UNKNOWN_RENDERER
    return revisions.make(name, pod_spec=fresh.pod_spec, renderer=renderer, template=template)


async def _read(client: Client, kind: Kind, key: Key, owner_uid: str) -> Object | None:
    try:
        obj = await client.get(kind, key)
    except NotFound:
        return None
    return obj if is_controlled_by(obj, owner_uid) else None


def _is_ready_now(backend: Object) -> bool:
    status = backend.get("status", {})
    return status.get("observedGeneration") == backend["metadata"].get("generation") and is_ready(status)
