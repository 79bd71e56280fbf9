"""What is told of quotas: how one stands, and which of several refuses a request."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

import msgspec

from penstock.admission.meter import Check, Meter
from penstock.admission.shed import Shed
from penstock.api.ratelimits import QuotaUnit, RateLimit

Worst = tuple[RateLimit, Check] | None
"""The quota that a request would have to wait for the longest, None while there is none."""


class QuotaView(msgspec.Struct, frozen=True, gc=False):
    """One quota as a client sees it: who keeps to `remaining` and `reset_seconds` is not refused by it.

    Attributes:
        name: The quota's name.
        unit: What it counts.
        limit: What may pass at once when everything is there; the part of this replica, unless a store is shared.
        remaining: What may pass now, at most `limit`.
        reset_seconds: Time until `limit` may pass, if nothing passes before.
        window_seconds: The window that the configured limit is about.
    """

    name: str
    unit: QuotaUnit
    limit: int
    remaining: int
    reset_seconds: float
    window_seconds: int


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """Why something may not pass now.

    Attributes:
        name, unit: The quota that it would have to wait for the longest.
        wait_seconds: Time until this very request would pass if nothing passed before; `inf` for never.
        view: All quotas that apply to it.
    """

    name: str
    unit: QuotaUnit
    wait_seconds: float
    view: tuple[QuotaView, ...]

    @property
    def shed(self) -> Shed:
        """Why it is refused: what is larger than a quota ever lets pass asks again in vain."""
        return Shed.NEVER_FITS if isinf(self.wait_seconds) else Shed.QUOTA


def longer(worst: Worst, quota: RateLimit, check: Check) -> Worst:
    """Return whichever has to be waited for longer; None if nothing has."""
    least = worst[1].wait_seconds if worst else 0.0
    return (quota, check) if check.wait_seconds > least else worst


def refusal_of(worst: tuple[RateLimit, Check], view: tuple[QuotaView, ...]) -> QuotaRefusal:
    """Return the refusal by the quota that takes the longest."""
    quota, check = worst
    return QuotaRefusal(name=quota.name, unit=quota.unit, wait_seconds=check.wait_seconds, view=view)


def view_of(quota: RateLimit, meter: Meter, now: float) -> QuotaView:
    """Return how a quota stands."""
    shown = meter.allowance.shown
    remaining, reset_seconds = meter.standing(now)
    return QuotaView(quota.name, quota.unit, shown, min(shown, remaining), reset_seconds, quota.window_seconds)
