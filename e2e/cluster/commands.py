"""Commands in a node's network: the part of a cluster that does not depend on what made it.

A driver says how to get into the network of a node; everything else about running something there is the same, so that
a test cannot tell the drivers apart.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.cluster import cleanup
from e2e.cluster.folders import Folders

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")


class Commands(ABC):
    """Runs commands in a cluster; see `protocol.Cluster` for what the methods promise."""

    def __init__(self, name: str, folders: Folders) -> None:
        self.name = name
        self.folders = folders

    @property
    def kubeconfig(self) -> Path:
        return self.folders.kubeconfig

    @property
    def logs(self) -> Path:
        return self.folders.logs

    @property
    @abstractmethod
    def kubectl_path(self) -> Path: ...

    @abstractmethod
    def enter(self, argv: Sequence[str], *, node: str | None) -> list[str]:
        """Return the command line that runs `argv` in the network of a node, the first one by default."""

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        node: str | None = None,
        check: bool = True,
        input: str | None = None,  # noqa: A002 - as subprocess calls it
        timeout: float | None = None,
        capture: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        return subprocess.run(
            self.enter([str(word) for word in argv], node=node),
            env=self._environment(os.environ),
            check=check,
            timeout=timeout,
            capture_output=capture,
            text=True,
            **source,
        )

    def popen(
        self, argv: Sequence[str | Path], *, node: str | None = None, **popen_kwargs: Any
    ) -> subprocess.Popen[str]:
        environment = self._environment(popen_kwargs.pop("env", None) or os.environ)
        command = self.enter([str(word) for word in argv], node=node)
        return subprocess.Popen(command, **{"text": True, **popen_kwargs, "env": environment})

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        return self.run([self.kubectl_path, *args], input=input, check=check).stdout

    def mark(self) -> dict[str, str]:
        """Return the variable that marks the processes of this cluster, see `cleanup`."""
        return {cleanup.MARK: str(self.folders.root)}

    def _environment(self, base: Mapping[str, str]) -> dict[str, str]:
        # No proxy can be reached from the cluster's network, so a setting that names one would only break clients.
        kept = {name: value for name, value in base.items() if name.lower() not in PROXY_VARIABLES}
        path = f"{base.get('PATH', os.defpath)}:{self.kubectl_path.parent}"
        return {**kept, **self.mark(), "KUBECONFIG": str(self.kubeconfig), "PATH": path}
