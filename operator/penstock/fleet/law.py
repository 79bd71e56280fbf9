"""The law of the admission rate R: how many requests per second a backend admits, decided anew each round.

    state     | what R is                                     | what binds
    ----------|-----------------------------------------------|------------------
    tracking  | 1.25 times the highest rate admitted lately   | nothing
    binding   | what the rules have made of it                | R

While there is no pressure R only follows: a burst after a quiet hour must not be held back by the quiet. Under pressure
it binds, and falls; when pressure has gone it rises to where it was before, and then binds no more. In each round the
first `Rule` that applies decides.

Signals are missing when nothing is known of more than half of the replicas. After a cut the two rounds begin anew,
since what was let in before has to leave the engine before the cut can show; for the same reason pressure that was
measured before the cut says nothing about it. What R does while it binds is at most 30 % per round, and it is never
less than 6 requests per minute and replica, so never 0. When more or fewer replicas are ready, R is as much per replica
as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from penstock.fleet.pressure import Pressure

HEADROOM = 1.25
FADING = 0.98
"""What is left of the highest admitted rate after a round."""

FULL = 1.0
SEVERE = 2.0
CALM = 0.7
CUT = 0.9
SEVERE_CUT = 0.7
GROWTH = 1.05
DECAY = 0.95
LARGEST_CHANGE = 0.3
ROUNDS_OF_PRESSURE = 2
FROZEN_AFTER_ROUNDS = 3
DECAY_AFTER_ROUNDS = 10
FLOOR_PER_REPLICA = 6 / 60
"""Requests per second."""


class Rule(StrEnum):
    """Which rule decided a round, in the order in which they are tried: when it applies, and what R is then."""

    FIXED = "fixed"
    """`adaptive.mode` is `Fixed`, or `admission.mode` is `Disabled`: R follows, and binds nothing."""
    IDLE = "idle"
    """No replica is ready: R stays."""
    DECAY = "decay"
    """Signals have been missing for more than 10 rounds while R binds: x 0.95."""
    FROZEN = "frozen"
    """Signals have been missing for more than 3 rounds: R stays."""
    MISSING = "missing"
    """Signals are missing in this round: R stays."""
    SEVERE = "severe"
    """Pressure is above 2 on half of the replicas, and above 1 for two rounds: the least of R and admitted, x 0.7."""
    OVERLOAD = "overload"
    """Pressure is above 1 on half of the replicas for two rounds: the least of R and admitted, x 0.9."""
    RECOVERY = "recovery"
    """R binds, and pressure is known of all replicas and below 0.7: x 1.05."""
    RECOVERED = "recovered"
    """By `recovery` R would be what it was before it began to bind: it follows again, and binds nothing."""
    HOLD = "hold"
    """R binds, and nothing above is so: it stays."""
    TRACKING = "tracking"
    """R does not bind, and nothing above is so: it follows."""


CHANGING = frozenset({Rule.SEVERE, Rule.OVERLOAD, Rule.RECOVERY, Rule.DECAY})
"""Rules that move R while it binds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The admission rate and what the law remembers.

    Attributes:
        per_second: R; None until something has been seen.
        before: What R was before it began to bind; None while it does not.
        seen: Highest admitted rate lately, requests per second.
        rounds_over: Rounds in a row in which pressure was above 1 on half of the replicas.
        rounds_missing: Rounds in a row without signals.
        replicas: Ready replicas in the last round in which any was; 0 before that.
        cut_age_seconds: How long ago R was cut; endless when it never was.
    """

    per_second: float | None = None
    before: float | None = None
    seen: float = 0.0
    rounds_over: int = 0
    rounds_missing: int = 0
    replicas: int = 0
    cut_age_seconds: float = inf

    @property
    def per_replica(self) -> float | None:
        """What the limiter of a replica is held to, requests per second; None while R does not bind."""
        return None if self.before is None or self.per_second is None else self.per_second / max(1, self.replicas)

    @property
    def binds(self) -> bool:
        """Whether limiters are held to it."""
        return self.before is not None

    @property
    def fresh(self) -> bool:
        """Whether there were signals in the last round."""
        return self.rounds_missing == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a round has found.

    Attributes:
        pressures: Of each ready replica; None for unknown.
        admitted_per_second: By all of them; None for unknown.
        elapsed_seconds: Since the last round.
        adaptive: Whether limits are to follow the engine.
    """

    pressures: Sequence[Pressure | None]
    admitted_per_second: float | None
    elapsed_seconds: float
    adaptive: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a round has decided.

    Attributes:
        rate: R from now on.
        rule: Which rule decided.
        pressure: The largest pressure of a replica; None when none is known.
    """

    rate: Rate
    rule: Rule
    pressure: Pressure | None


def decide(rate: Rate, sight: Sight) -> Verdict:
    """Return what a round's findings make of the rate."""
    known = [one for one in sight.pressures if one is not None]
    replicas = len(sight.pressures)
    worst = max(known, default=None)
    floor = FLOOR_PER_REPLICA * max(1, replicas)
    rate = _spread(replace(rate, cut_age_seconds=rate.cut_age_seconds + sight.elapsed_seconds), replicas)
    seen = _seen(rate, sight)
    if not sight.adaptive:
        return Verdict(_follow(replace(rate, rounds_over=0), seen, floor), Rule.FIXED, worst)
    if not replicas:
        return Verdict(replace(rate, rounds_over=0, rounds_missing=0), Rule.IDLE, None)
    if 2 * len(known) < replicas:
        return _without_signals(rate, floor, worst)
    over = 0
    if _on_half(known, FULL, replicas):
        counts = _on_half(_since(rate.cut_age_seconds, known), FULL, replicas)
        over = rate.rounds_over + 1 if counts else rate.rounds_over
    return _with_signals(replace(rate, seen=seen, rounds_missing=0, rounds_over=over), sight, known, floor)


def _with_signals(rate: Rate, sight: Sight, known: Sequence[Pressure], floor: float) -> Verdict:
    replicas, worst = len(sight.pressures), max(known)
    if rate.rounds_over >= ROUNDS_OF_PRESSURE:
        severe = _on_half(_since(rate.cut_age_seconds, known), SEVERE, replicas)
        return Verdict(_cut(rate, sight, floor, severe=severe), Rule.SEVERE if severe else Rule.OVERLOAD, worst)
    if rate.before is None or rate.per_second is None:
        return Verdict(_follow(rate, rate.seen, floor), Rule.TRACKING, worst)
    if len(known) == replicas and all(one.ratio < CALM for one in known):
        return _recover(rate, floor, worst, before=rate.before, per_second=rate.per_second)
    return Verdict(replace(rate, per_second=max(rate.per_second, floor)), Rule.HOLD, worst)


def _spread(rate: Rate, replicas: int) -> Rate:
    """Return the rate for so many replicas: as much for each as before."""
    if not replicas:
        return rate
    part = replicas / rate.replicas if rate.replicas else 1.0
    rate = replace(rate, replicas=replicas)
    if rate.before is None or rate.per_second is None:
        return rate
    return replace(rate, per_second=rate.per_second * part, before=rate.before * part)


def _since(seconds: float, known: Sequence[Pressure]) -> Sequence[Pressure]:
    return [one for one in known if one.age_seconds < seconds]


def _seen(rate: Rate, sight: Sight) -> float:
    kept = rate.seen if rate.binds else rate.seen * FADING  # while R binds, little is admitted for that reason
    return max(kept, sight.admitted_per_second or 0.0)


def _on_half(known: Sequence[Pressure], above: float, replicas: int) -> bool:
    return 2 * sum(one.ratio > above for one in known) >= replicas


def _follow(rate: Rate, seen: float, floor: float) -> Rate:
    """Return the rate that binds nobody."""
    return replace(
        rate,
        per_second=max(HEADROOM * seen, floor),
        before=None,
        seen=seen,
        rounds_missing=0,
        rounds_over=rate.rounds_over,
    )


def _without_signals(rate: Rate, floor: float, worst: Pressure | None) -> Verdict:
    rate = replace(rate, rounds_missing=rate.rounds_missing + 1, rounds_over=0)
    if rate.rounds_missing > DECAY_AFTER_ROUNDS and rate.binds and rate.per_second is not None:
        return Verdict(replace(rate, per_second=max(rate.per_second * DECAY, floor)), Rule.DECAY, worst)
    return Verdict(rate, Rule.FROZEN if rate.rounds_missing > FROZEN_AFTER_ROUNDS else Rule.MISSING, worst)


def _cut(rate: Rate, sight: Sight, floor: float, *, severe: bool) -> Rate:
    """Return the rate after a cut: below what is let in, for above that a cut would change nothing."""
    now = max(HEADROOM * rate.seen, floor) if rate.per_second is None or not rate.binds else rate.per_second
    admitted = sight.admitted_per_second
    wanted = (now if admitted is None else min(now, admitted)) * (SEVERE_CUT if severe else CUT)
    return replace(
        rate,
        per_second=max(wanted, now * (1 - LARGEST_CHANGE), floor),
        before=now if rate.before is None else rate.before,
        rounds_over=0,
        cut_age_seconds=0.0,
    )


def _recover(rate: Rate, floor: float, worst: Pressure | None, *, before: float, per_second: float) -> Verdict:
    grown = max(per_second * GROWTH, floor)
    if grown >= before:
        return Verdict(_follow(rate, rate.seen, floor), Rule.RECOVERED, worst)
    return Verdict(replace(rate, per_second=grown), Rule.RECOVERY, worst)
