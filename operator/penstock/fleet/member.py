"""One backend in the slow loop: what is known of it, a round, and a push.

A round reads both sources at the same time: limiters always, since only they know of their queues, and Prometheus where
there is one. Of what both know the fresher counts. Signals are said to come from Prometheus as long as what it knows of
at least half of the engines is younger than a push's TTL, whichever of both was the fresher in this round.

A leader begins with nothing in memory. Before any limiter has answered it does not know what another leader has pushed,
so it decides nothing and pushes nothing; then it takes over what still binds.

A replica is pushed to when it does not hold yet what is in force, or might not: other limits than the last ones, a
limiter that has begun anew or did not answer, a push that failed, or one whose TTL is well on its way.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.api.admission import AdaptiveMode, AdmissionMode
from penstock.api.push import POLICY_LIMIT_CHARACTERS, Decision, PushedLimits, PushResult
from penstock.api.status import SignalOrigin
from penstock.fleet import law
from penstock.fleet.pressure import pressure_of
from penstock.fleet.push import Target
from penstock.fleet.signals import NOTHING, Away, Replica, ReplicaSignals, SignalSource, Subject
from penstock.fleet.target import FleetTarget, FleetView

RENEWAL_PART = 0.375
"""Part of the TTL after which a push is repeated: with a TTL of four rounds every second one, jitter or not."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a replica has taken last: the limits, the process that took them, and when."""

    said: tuple[object, ...]
    boot_id: str | None
    at: float


class Pushes(Protocol):
    """Sends limits; see `fleet.push.Pusher`."""

    async def push(self, target: Target, limits: PushedLimits, *, ttl_seconds: float) -> PushResult:
        """Push to one replica; never raises."""

    def forget(self, pod_uid: str) -> None:
        """A replica is gone."""


class Member:
    """See the module's docstring.

    Attributes:
        name: For the log.
        target: The backend as the reconciler sees it.
        view: What the last round has made of it; None before the first.
        has_begun: Whether a limiter has answered, so that it is known what is in force.
    """

    def __init__(
        self,
        name: str,
        namespace: str,
        target: FleetTarget,
        *,
        direct: SignalSource,
        prometheus: SignalSource | None,
        pushes: Pushes,
        ttl_seconds: float,
        rounds: Counter[str] | None = None,
    ) -> None:
        self.name = name
        self.target = target
        self.view: FleetView | None = None
        self._namespace = namespace
        self._direct = direct
        self._prometheus = prometheus
        self._pushes = pushes
        self._ttl_seconds = ttl_seconds
        self._verdict = law.Verdict(law.Rate(), law.Rule.IDLE, None)
        self._boots: dict[str, str] = {}
        self._sent: dict[str, _Sent] = {}
        self.has_begun = False
        self._round_at: float | None = None
        self._tally: Counter[str] = Counter() if rounds is None else rounds
        self._limited_by = law.Rule.TRACKING

    async def round(self) -> None:
        """Read, decide, push."""
        target = self.target
        ready = target.ready
        subject = Subject(namespace=self._namespace, engine=target.engine, replicas=ready)
        near, far = await asyncio.gather(self._direct.read(subject), self._ask_prometheus(subject))
        told, trouble = far
        self._boots = {name: one.boot_id for name, one in near.items() if one.boot_id is not None}
        then, now = self._round_at, asyncio.get_running_loop().time()
        self._round_at = now
        signals = {one.name: _merged(told.get(one.name), near.get(one.name)) for one in ready}
        targets = target.admission.adaptive.targets
        if near and not self.has_begun:
            self.has_begun = True
            self._take_over(near, replicas=len(ready))
        pressures = [pressure_of(one, targets, target.engine) for one in signals.values()]
        sight = law.Sight(
            pressures=pressures if self.has_begun else [None] * len(ready),
            admitted_per_second=_admitted(signals),
            elapsed_seconds=0.0 if then is None else now - then,
            adaptive=_follows(target),
        )
        before, self._verdict = self._verdict, law.decide(self._verdict.rate, sight)
        self._tally[self._verdict.rule] += 1
        self._limited_by = self._limiting()
        if before.rule is not self._verdict.rule and then is not None:
            self._tell()
        await self.push()
        self.view = FleetView(
            rate=self._verdict.rate,
            rule=self._verdict.rule,
            limited_by=self._limited_by,
            pressure=self._verdict.pressure,
            origin=self._origin(told, ready),
            limit_per_replica=_limit(signals),
            prometheus=trouble or self._missing(told, ready),
            answers=not trouble,
            reached=sum(one.uid in self._sent for one in ready),
            ready=len(ready),
            ages=_ages(signals),
        )

    async def push(self) -> None:
        """See to it that every ready replica has what is in force, as soon as that is known."""
        if not self.has_begun:
            return
        ready, now = self.target.ready, asyncio.get_running_loop().time()
        await asyncio.gather(*(self._push(one, ready, now) for one in ready))

    async def _push(self, replica: Replica, ready: tuple[Replica, ...], now: float) -> None:
        verdict, per_second = self._verdict, self._verdict.rate.per_replica
        share, policy = 1 / len(ready), self.target.policy
        if policy is not None and len(policy) > POLICY_LIMIT_CHARACTERS:
            policy = None  # it comes with the ConfigMap
        peers = tuple(one.address for one in ready if one is not replica)
        said = (per_second, share, peers, policy, verdict.rule, replica.address)
        boot_id, sent = self._boots.get(replica.name), self._sent.get(replica.uid)
        if sent is not None and sent.said == said and boot_id is not None:
            is_late = now - sent.at >= RENEWAL_PART * self._ttl_seconds
            if not is_late and sent.boot_id in (boot_id, None):
                return
        pressure = verdict.pressure
        limits = PushedLimits(
            rate_per_second=per_second,
            share=share,
            peers=peers,
            policy=policy,
            decision=Decision(
                rule=verdict.rule,
                signal=pressure.signal if pressure else None,
                value=round(pressure.value, 4) if pressure else None,
                age_seconds=round(pressure.age_seconds, 3) if pressure else None,
            ),
        )
        target = Target(
            backend_uid=self.target.uid,
            pod_uid=replica.uid,
            address=replica.address,
            boot_id=boot_id,
        )
        result = await self._pushes.push(target, limits, ttl_seconds=self._ttl_seconds)
        if result is PushResult.APPLIED and any(one.uid == replica.uid for one in self.target.replicas):
            self._sent[replica.uid] = _Sent(said, boot_id, now)
        else:
            self._sent.pop(replica.uid, None)

    def forget_pods(self, gone: set[str]) -> None:
        """Pods with these uids are gone."""
        for uid in gone:
            self._pushes.forget(uid)
            self._sent.pop(uid, None)

    async def _ask_prometheus(self, subject: Subject) -> tuple[Mapping[str, ReplicaSignals], str]:
        """Return what Prometheus knows, and why it knows nothing."""
        if self._prometheus is None or not subject.replicas:
            return {}, ""
        try:
            return await self._prometheus.read(subject), ""
        except Away as away:
            return {}, str(away)

    def _origin(self, told: Mapping[str, ReplicaSignals], ready: tuple[Replica, ...]) -> SignalOrigin:
        if not self._verdict.rate.fresh:
            return SignalOrigin.STALE
        known = sum(told.get(one.name, NOTHING).of_engine_within(self._ttl_seconds) for one in ready)
        return SignalOrigin.PROMETHEUS if ready and 2 * known >= len(ready) else SignalOrigin.DIRECT

    def _missing(self, told: Mapping[str, ReplicaSignals], ready: tuple[Replica, ...]) -> str:
        if self._prometheus is None or not ready or any(told.get(one.name, NOTHING).of_engine for one in ready):
            return ""
        return "Prometheus has no current series of this backend's engines"

    def _take_over(self, near: Mapping[str, ReplicaSignals], *, replicas: int) -> None:
        """Begin with what another leader has pushed, where that still binds."""
        rates = [one.pushed_rate for one in near.values() if one.pushed_rate is not None]
        if rates:
            per_second = sum(rates) / len(rates) * replicas
            rate = law.Rate(per_second=per_second, before=per_second * law.HEADROOM, seen=per_second, replicas=replicas)
            self._verdict = law.Verdict(rate, law.Rule.HOLD, None)

    def _limiting(self) -> law.Rule:
        """Return the rule that made R what it is: while R does not bind, which rule looked last is no news."""
        rule = self._verdict.rule
        if not self._verdict.rate.binds:
            return law.Rule.FIXED if rule is law.Rule.FIXED else law.Rule.TRACKING
        return rule if rule in law.CHANGING else self._limited_by

    def _tell(self) -> None:
        """Log that another rule decides."""
        rate, pressure = self._verdict.rate, self._verdict.pressure
        level = logging.INFO if rate.binds or self._verdict.rule is law.Rule.RECOVERED else logging.DEBUG
        _log.log(
            level,
            "%s: admission rate %.2f/s by rule %s, %s",
            self.name,
            rate.per_second or 0.0,
            self._verdict.rule,
            f"{pressure.signal} is {pressure.value:.4g}, {pressure.age_seconds:.0f} s old" if pressure else "no signal",
        )


def _follows(target: FleetTarget) -> bool:
    """Tell whether limits are to follow the engine; where all is let pass a rate would be for nothing."""
    admission = target.admission
    return admission.adaptive.mode is AdaptiveMode.AUTO and admission.mode is not AdmissionMode.DISABLED


def _ages(signals: Mapping[str, ReplicaSignals]) -> dict[str, float]:
    ages: dict[str, float] = {}
    for one in signals.values():
        for name, age in one.ages().items():
            ages[name] = max(age, ages.get(name, 0.0))
    return ages


def _merged(told: ReplicaSignals | None, near: ReplicaSignals | None) -> ReplicaSignals:
    return (told or NOTHING).or_fresher(near or NOTHING)


def _admitted(signals: Mapping[str, ReplicaSignals]) -> float | None:
    """Return the requests per second of all replicas together, as far as all are known."""
    rates = [one.admitted_per_second for one in signals.values()]
    known = [rate.value for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def _limit(signals: Mapping[str, ReplicaSignals]) -> int | None:
    limits = [one.limit.value for one in signals.values() if one.limit is not None]
    return int(statistics.median_low(limits)) if limits else None
