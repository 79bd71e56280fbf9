"""What the slow loop is told of a backend, and what it tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.api.admission import AdmissionPolicy
from penstock.api.engine import EngineType
from penstock.api.status import SignalOrigin
from penstock.fleet import law
from penstock.fleet.pressure import Pressure
from penstock.fleet.signals import Replica

NEWS = 0.1
"""A rate that has moved by this part is news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTarget:
    """A backend as the reconciler sees it.

    Attributes:
        uid: Its metadata.uid.
        engine: Its engine.
        admission: `spec.admission`.
        policy: Text of the policy file; None while the file is to be left as it is.
        replicas: Its pods.
    """

    uid: str
    engine: EngineType
    admission: AdmissionPolicy
    policy: str | None
    replicas: tuple[Replica, ...]

    @property
    def ready(self) -> tuple[Replica, ...]:
        """The replicas that get requests."""
        return tuple(one for one in self.replicas if one.ready and one.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """What status and metrics say of a backend.

    Attributes:
        rate: R, see `law.Rate`.
        rule: Which rule decided last.
        limited_by: Which rule has made R what it is.
        pressure: The largest pressure of a replica.
        origin: Where signals come from.
        limit_per_replica: Requests in flight that one replica admits, the median.
        prometheus: Why Prometheus tells nothing of the engines; empty when it does, or there is none.
        answers: Whether Prometheus answers.
        reached: Replicas whose limiter has taken the last push.
        ready: Replicas that get requests.
        ages: Seconds since the signals were true, by signal; of several replicas the oldest.
    """

    rate: law.Rate
    rule: law.Rule
    limited_by: law.Rule
    pressure: Pressure | None
    origin: SignalOrigin
    limit_per_replica: int | None
    prometheus: str
    answers: bool
    reached: int
    ready: int
    ages: Mapping[str, float]

    @property
    def bound_per_second(self) -> float | None:
        """R while it binds, None while it does not."""
        return self.rate.per_second if self.rate.binds else None

    @property
    def reaches_limiters(self) -> bool:
        """Whether at least half of the limiters have taken the last push."""
        return 2 * self.reached >= self.ready

    def is_news_after(self, told: FleetView | None) -> bool:
        """Tell whether this is worth a look at the backend's status, after another view was."""
        if told is None or self.outline != told.outline:
            return True
        now, then = self.bound_per_second, told.bound_per_second
        return now is not None and then is not None and abs(now - then) >= NEWS * then

    @property
    def outline(self) -> tuple[object, ...]:
        """What is news whenever it changes."""
        trouble = (self.origin, bool(self.prometheus), self.answers, self.reaches_limiters)
        return (*trouble, self.limited_by, self.limit_per_replica, self.ready > 0)
