"""Who may take a new template now, where releases of Penstock may replace replicas (`upgradePolicy: Rolling`).

Theory of operation. Each backend is in one `Phase`; its Deployment and pods say in which.

    SETTLED ──permission──> UPGRADING <──trouble comes, passes──> FAILING
       ^                        │                                   │
       └────────complete────────┘     a user edits it: CHANGING <───┘

A backend may begin when it is SETTLED itself, fewer than the permitted number are CHANGING, UPGRADING or FAILING, and
none is FAILING: what breaks one backend would likely break the next. A failing one that recovers, is edited or is
deleted lets the others go on. What users change is never held back.

Between the permission and the first sign of it in the cluster lie several requests. So a permission holds a place from
the moment it is given until it is given back, after which the state that was observed counts.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.rollout.phase import Phase

MAX_CONCURRENT_ROLLOUTS = 2

SHORTEST_WAIT_SECONDS = 2.0
WAITING_PER_SECOND = 10.0
"""How many of those that wait may ask again in one second, over the whole fleet: asking costs a pass."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Why a backend has to wait.

    Attributes:
        reason: Why, for people.
        ask_again_seconds: When to ask again; nothing else tells.
    """

    reason: str
    ask_again_seconds: float


class Pacer(Generic[K]):
    """Knows what every backend is doing and gives permissions.

    Args:
        maximum: The most rollouts at a time over the whole fleet, at least 1.
    """

    def __init__(self, *, maximum: int = MAX_CONCURRENT_ROLLOUTS) -> None:
        self._maximum = maximum
        self._phases: dict[K, Phase] = {}
        self._permitted: set[K] = set()
        self._waiting: set[K] = set()

    @property
    def busy(self) -> frozenset[K]:
        """The backends whose replicas are being replaced, as observed last."""
        return frozenset(self._phases)

    def observe(self, key: K, phase: Phase) -> None:
        """Take note of what a backend is doing."""
        if phase is Phase.SETTLED:
            self._phases.pop(key, None)
        else:
            self._phases[key] = phase

    def ask(self, key: K) -> Wait | None:
        """Return None when the backend may begin now, and why not otherwise; a permission must be given back."""
        reason = self._hindrance(key)
        if reason:
            self._waiting.add(key)
            seconds = max(SHORTEST_WAIT_SECONDS, len(self._waiting) / WAITING_PER_SECOND)
            return Wait(reason=reason, ask_again_seconds=seconds)
        self._waiting.discard(key)
        self._permitted.add(key)
        return None

    def give_back(self, key: K) -> None:
        """End a permission, if there is one: the new template is in the cluster, or could not be brought there."""
        self._permitted.discard(key)

    def content(self, key: K) -> None:
        """Take note that a backend wants no new template."""
        self._waiting.discard(key)

    def forget(self, key: K) -> None:
        """Drop all that is known of a backend: it is gone."""
        self._phases.pop(key, None)
        self._permitted.discard(key)
        self._waiting.discard(key)

    def _hindrance(self, key: K) -> str:
        if key in self._phases:
            return "its replicas are being replaced already"
        failing = sorted(str(other) for other, phase in self._phases.items() if phase is Phase.FAILING)
        if failing:
            return f"the new replicas of {failing[0]} are in trouble; mend or delete it, and the others go on"
        if len((self._phases.keys() | self._permitted) - {key}) >= self._maximum:
            return f"other rollouts are under way, {self._maximum} at a time are allowed"
        return ""
