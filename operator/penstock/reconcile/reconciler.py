"""One pass over one backend: observe, plan, act, report.

Level-based: a pass looks at what is, never at what happened, so a lost or repeated event costs nothing but time. What
is desired comes from `resources` and what status says from `status`, both pure; this module fetches, applies and
writes, and decides nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.api.backend import LLMBackend
from penstock.api.conditions import ConditionType, Reason
from penstock.api.errors import InvalidBackend
from penstock.kube.client import Client
from penstock.kube.errors import Conflict, KubeError, NotFound, TooManyRequests
from penstock.kube.kinds import DEPLOYMENT, LLM_BACKEND, POD
from penstock.reconcile.cache import Cache
from penstock.reconcile.children import Blocked, Children, Gone
from penstock.reconcile.outcome import Done, Failed, Outcome, RequeueAfter
from penstock.resources import children, deployment
from penstock.resources.objects import Key, Object, is_terminating
from penstock.resources.settings import BuildSettings
from penstock.status.assess import Observation, assess
from penstock.status.trouble import Trouble

GONE_SECONDS = 0.5
"""A deleted child's place is usually free by then."""

BLOCKED_SECONDS = 10.0
"""How often a taken name is looked at again: no event tells when a foreign object goes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Result:
    """How applying ended: the outcome for the queue, and what status has to say about it."""

    outcome: Outcome
    trouble: Trouble | None = None


class Reconciler:
    """Reconciles backends by key.

    Args:
        client: The API server.
        cache: What was observed; own writes are entered at once.
        settings: What the builders need besides the backend.
        now: The wall clock, for conditions.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        settings: BuildSettings,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cache = cache
        self._settings = settings
        self._now = now
        self._children = Children(client, cache)

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one backend's children and status to what they should be; never raises what the cluster may answer."""
        raw = self._cache.get(LLM_BACKEND, key)
        if raw is None or is_terminating(raw):
            # The garbage collector takes the children, by their owner references.
            self._children.forget(key)
            return Done()
        try:
            return await self._pass(key, raw)
        except TooManyRequests as error:
            return Failed(str(error), retry_after_seconds=error.retry_after_seconds)
        except KubeError as error:
            return Failed(str(error))

    async def _pass(self, key: Key, raw: Object) -> Outcome:
        backend, trouble = _understand(raw)
        if backend is None:
            await self._report(key, raw, None, trouble)
            return Done()
        if not raw.get("status", {}).get("conditions"):
            # Tools take an object without conditions for finished, so this comes before the children.
            raw = await self._report(key, raw, backend, None)
        result = await self._act(key, raw, backend)
        await self._report(key, raw, backend, result.trouble)
        return result.outcome

    async def _act(self, key: Key, raw: Object, backend: LLMBackend) -> _Result:
        try:
            await self._children.converge(raw["metadata"]["uid"], key, children.build(backend, self._settings))
        except Gone as gone:
            _log.info("%s: %s", key, gone)
            return _Result(outcome=RequeueAfter(GONE_SECONDS))
        except Blocked as blocked:
            outcome = Failed(str(blocked)) if blocked.retry else RequeueAfter(BLOCKED_SECONDS)
            return _Result(outcome=outcome, trouble=blocked.trouble)
        return _Result(outcome=Done())

    async def _report(self, key: Key, raw: Object, backend: LLMBackend | None, trouble: Trouble | None) -> Object:
        """Write status if it changed, and return the backend as it is afterwards."""
        previous = raw.get("status", {})
        name = Key(key.namespace, deployment.name(backend) if backend is not None else key.name)
        owned = self._cache.get(DEPLOYMENT, name)
        observation = Observation(
            generation=raw["metadata"]["generation"],
            previous=previous,
            deployment=owned if owned in self._cache.of_backend(key, DEPLOYMENT) else None,
            pods=self._cache.of_backend(key, POD),
            trouble=trouble,
        )
        status = assess(backend, observation, now=self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if status == previous:
            return raw
        body = {
            "apiVersion": LLM_BACKEND.api_version,
            "kind": LLM_BACKEND.name,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": raw["metadata"]["uid"]},
            "status": status,
        }
        try:
            answer = await self._client.patch_status(body)
        except (NotFound, Conflict):
            # Deleted meanwhile, or deleted and made anew: the event tells.
            return raw
        self._cache.store(LLM_BACKEND, answer)
        _log_transition(key, previous, status)
        return answer


def _understand(raw: Object) -> tuple[LLMBackend | None, Trouble | None]:
    try:
        backend = LLMBackend.parse(raw)
        problems = children.check(backend)
        if problems:
            raise InvalidBackend(problems)
    except InvalidBackend as error:
        return None, Trouble(reason=Reason.INVALID_SPEC, message=str(error), stalled=True)
    return backend, None


def _log_transition(key: Key, previous: Object, status: Object) -> None:
    before, after = _ready(previous), _ready(status)
    if (before.get("status"), before.get("reason")) != (after.get("status"), after.get("reason")):
        _log.info("%s: Ready=%s %s: %s", key, after["status"], after["reason"], after["message"])


def _ready(status: Object) -> Object:
    for condition in status.get("conditions", ()):
        if condition["type"] == ConditionType.READY:
            return dict(condition)
    return {}
