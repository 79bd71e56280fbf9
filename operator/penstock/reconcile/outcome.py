"""How a reconcile ended, and with that, when the backend is looked at again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """Nothing is left to do until something changes."""


@dataclass(frozen=True)
class RequeueAfter:
    """Something outside must pass first, and no event will tell: look again then.

    Attributes:
        seconds: How long to wait.
    """

    seconds: float


@dataclass(frozen=True)
class Failed:
    """Try again with growing delays.

    Attributes:
        reason: What happened, for people.
        retry_after_seconds: The least to wait, when the API server named it.
        reached: How many steps were done before, see `reconcile.backoff`.
    """

    reason: str
    retry_after_seconds: float = 0.0
    reached: int = 0


Outcome = Done | RequeueAfter | Failed
