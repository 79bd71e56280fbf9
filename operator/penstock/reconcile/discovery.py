"""What this cluster is and serves, asked now and then: what an administrator installs later is used without a restart.

Asked are two documents that every authenticated client may read, so no right on CustomResourceDefinitions is needed.
An answer that does not come leaves in place what was known.
"""

from __future__ import annotations

import logging

from penstock.kube.client import Client
from penstock.kube.errors import NotFound, Refused, Unavailable
from penstock.kube.kinds import CHILD_KINDS, LLM_BACKEND, OPTIONAL_KINDS, POD, POD_MONITOR, Kind
from penstock.resources.facts import ClusterFacts

_log = logging.getLogger(__name__)


class Discovery:
    """Keeps `facts` up to date.

    Args:
        client: The API server.

    Attributes:
        facts: What is known now.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._refused = ""
        self.facts = ClusterFacts()

    async def refresh(self) -> bool:
        """Ask again and tell whether anything has changed.

        Raises:
            KubeError: The API server cannot be reached; a refusal is only logged, since no cluster has to answer this.
        """
        try:
            facts = ClusterFacts(pod_monitors=await self._serves(POD_MONITOR), kubernetes_minor=await self._minor())
        except Refused as error:
            if str(error) != self._refused:
                _log.warning("what the cluster serves cannot be found out, so no PodMonitor is made: %s", error)
            self._refused = str(error)
            return False
        changed, self.facts = facts != self.facts, facts
        if changed:
            served = "PodMonitors are served" if facts.pod_monitors else "no PodMonitors are served"
            _log.info("the cluster is Kubernetes 1.%s, %s", facts.kubernetes_minor, served)
        return changed

    async def _serves(self, kind: Kind) -> bool:
        group_path = f"/apis/{kind.group}/{kind.version}"
        try:
            group = await self._client.read(group_path)
        except NotFound:
            return False
        resources = group.get("resources")
        if not isinstance(resources, list):
            raise Unavailable(f"{group_path} is answered with something that lists no resources")
        return any(isinstance(resource, dict) and resource.get("name") == kind.plural for resource in resources)

    async def _minor(self) -> int | None:
        # Some providers write "34+".
        digits = str((await self._client.read("/version")).get("minor", "")).rstrip("+")
        return int(digits) if digits.isdigit() else None


def watched_kinds(facts: ClusterFacts) -> tuple[Kind, ...]:
    """Return what is listed and watched: backends, their children and their pods, as far as the cluster serves them."""
    absent = () if facts.pod_monitors else OPTIONAL_KINDS
    return tuple(kind for kind in (LLM_BACKEND, *CHILD_KINDS, POD) if kind not in absent)
