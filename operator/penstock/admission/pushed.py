"""Which push a replica takes, and what of it is in force as time passes.

A push that was signed by a trusted key is taken if it is for this very process, and later than the one in force:

    judged in this order   | refused as
    -----------------------|---------------
    backend                | `wrong_backend`
    pod, if it is known    | `wrong_pod`
    boot id                | `wrong_boot`
    version                | `old_version`

So the version never goes back while the process lives, and a process that begins anew is known by its boot id.

    none ──taken──> fresh ──TTL over──> held
                      ^────── taken ──────┘

Held, the replica goes on alone. Its share stays. Its rate grows by a twentieth per quarter of the TTL, since what it
was bounded for may be over, and ends as no bound when it has become ten times what was pushed. What could have become
wrong in a way that harms does not count any more: the policy, since the file is newer sooner or later, and the peers,
since their addresses may be somebody else's by now.
"""

from __future__ import annotations

from enum import StrEnum

from penstock.api.push import Pushed, PushedLimits, PushResult, Version

DRIFT = 1.05
STEPS_PER_TTL = 4
DRIFT_STEPS = 48
"""After that many the rate is above ten times what was pushed, and binds nobody."""


class Standing(StrEnum):
    """What the last push is worth."""

    NONE = "none"
    """There was none."""
    FRESH = "fresh"
    """Its TTL runs."""
    HELD = "held"
    """Its TTL is over."""


class Acceptance:
    """See the module's docstring.

    Args:
        backend_uid: The own backend's.
        pod_uid: The own pod's; None when it is not known, then the boot id alone binds a push to this process.
        boot_id: Unlike that of any other process.

    Attributes:
        boot_id: The same.
        version: In force; None before the first.
        limits: Of the push in force.
        ttl_seconds: Of the push in force.
    """

    def __init__(self, *, backend_uid: str, pod_uid: str | None, boot_id: str) -> None:
        self.boot_id = boot_id
        self.version: Version | None = None
        self.limits: PushedLimits | None = None
        self.ttl_seconds = 0.0
        self._backend_uid = backend_uid
        self._pod_uid = pod_uid
        self._taken_at = 0.0

    def take(self, pushed: Pushed, *, now: float) -> PushResult:
        """Judge a push, and put it in force if nothing speaks against it."""
        result = self._judge(pushed)
        if result is PushResult.APPLIED:
            self.version = pushed.version
            self.limits = pushed.limits
            self.ttl_seconds = pushed.ttl_seconds
            self._taken_at = now
        return result

    def standing(self, now: float) -> Standing:
        """Say what the last push is worth."""
        if self.limits is None:
            return Standing.NONE
        return Standing.FRESH if self.ttl_left_seconds(now) > 0 else Standing.HELD

    def age_seconds(self, now: float) -> float:
        """Return how long ago the push in force came."""
        return max(0.0, now - self._taken_at)

    def ttl_left_seconds(self, now: float) -> float:
        """Return how much of the TTL is left, 0 when it is over."""
        return max(0.0, self.ttl_seconds - self.age_seconds(now)) if self.limits else 0.0

    @property
    def share(self) -> float | None:
        """The part of shared quotas; None before the first push."""
        return self.limits.share if self.limits else None

    def rate_per_second(self, now: float) -> float | None:
        """Return the rate that binds now; None for no bound."""
        if self.limits is None or self.limits.rate_per_second is None:
            return None
        over_seconds = self.age_seconds(now) - self.ttl_seconds
        if over_seconds < 0:
            return self.limits.rate_per_second
        steps = over_seconds * STEPS_PER_TTL / self.ttl_seconds
        return None if steps >= DRIFT_STEPS else self.limits.rate_per_second * DRIFT ** int(steps)

    def peers(self, now: float) -> tuple[str, ...]:
        """Return the addresses of the other replicas; none when it is not known any more."""
        return self.limits.peers if self.limits and self.standing(now) is Standing.FRESH else ()

    def _judge(self, pushed: Pushed) -> PushResult:
        if pushed.backend_uid != self._backend_uid:
            return PushResult.WRONG_BACKEND
        if self._pod_uid is not None and pushed.pod_uid != self._pod_uid:
            return PushResult.WRONG_POD
        if pushed.boot_id != self.boot_id:
            return PushResult.WRONG_BOOT
        if self.version is not None and pushed.version <= self.version:
            return PushResult.OLD_VERSION
        return PushResult.APPLIED
