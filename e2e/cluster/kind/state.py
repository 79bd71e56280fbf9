"""What is known about a kind cluster between two commands: one small file in the cluster's folder.

It is written as soon as there is something to remove, and its last word is `up`: a start that was killed leaves a file
from which `down` still finds its way.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from e2e.cluster.node import Node
from e2e.cluster.process import Identity


@dataclass(frozen=True, kw_only=True)
class State:
    """A kind cluster.

    Attributes:
        kind: Path of the kind program that makes and removes it.
        anchor: The process that holds the namespaces of a Docker daemon of our own; None with the user's daemon.
        nodes: Its nodes, once they are there.
        up: Whether all of it was found working once.
    """

    kind: Path
    anchor: Identity | None
    nodes: tuple[Node, ...] = ()
    up: bool = False

    def but(self, **changes: Any) -> State:
        """Return this state with some attributes changed."""
        return replace(self, **changes)


def read(root: Path) -> State | None:
    """Return the state of the cluster with that folder, or None if there is no cluster."""
    try:
        found = json.loads(_file(root).read_text())
    except FileNotFoundError:
        return None
    return State(
        kind=Path(found["kind"]),
        anchor=Identity(**found["anchor"]) if found["anchor"] else None,
        nodes=tuple(Node(**node) for node in found["nodes"]),
        up=found["up"],
    )


def write(root: Path, state: State) -> State:
    """Keep the state and return it."""
    scratch = _file(root).with_suffix(".new")
    scratch.write_text(json.dumps(asdict(state) | {"kind": str(state.kind)}, indent=2))
    scratch.rename(_file(root))  # a reader finds the old state or the new one, never half of it
    return state


def _file(root: Path) -> Path:
    return root / "state.json"
