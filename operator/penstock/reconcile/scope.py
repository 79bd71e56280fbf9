"""Which of the namespaces that are served can be read, asked now and then.

An operator that serves a list of namespaces has its rights from a Role in each. When one namespace is deleted, its Role
goes with it, and every request there is refused. That is no reason to do worse by the others, so such a namespace is
left alone until it can be read again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.kube.client import Client
from penstock.kube.errors import Forbidden
from penstock.kube.kinds import LLM_BACKEND

_log = logging.getLogger(__name__)


class Scope:
    """Keeps `namespaces` up to date.

    Args:
        client: The API server.
        wanted: The namespaces to serve; empty means everywhere.

    Attributes:
        namespaces: Those of them that can be read; empty means everywhere.
    """

    def __init__(self, client: Client, wanted: Sequence[str]) -> None:
        self._client = client
        self._wanted = tuple(wanted)
        self.namespaces = self._wanted

    async def refresh(self) -> bool:
        """Ask again and tell whether anything has changed.

        Raises:
            KubeError: The API server cannot be reached, or none of the namespaces can be read; what was known stays.
        """
        readable = []
        refused: Forbidden | None = None
        for namespace in self._wanted:
            try:
                await self._client.read(f"{LLM_BACKEND.path(namespace)}?limit=1")
            except Forbidden as error:
                refused = error
                if namespace in self.namespaces:
                    _log.warning("namespace %s cannot be read and is left alone until it can: %s", namespace, error)
            else:
                readable.append(namespace)
                if namespace not in self.namespaces:
                    _log.info("namespace %s can be read again", namespace)
        if refused is not None and not readable:
            raise refused
        changed, self.namespaces = tuple(readable) != self.namespaces, tuple(readable)
        return changed
