"""kopf as the source of events, and nothing more.

kopf lists, watches, reconnects and logs in again; every event ends in the cache and, if it changed anything, in the
queue. Only `on.event` handlers are used: they keep no state in the objects, so kopf writes nothing, neither finalizers
nor annotations. Children and pods are selected by label on the server's side; a child that loses the label arrives as
deleted and is repaired.

Pods are watched, not listed when needed: a pod that cannot be scheduled or pulls no image changes nothing in its
Deployment, so without a watch such trouble would be found only by asking again and again. What is kept of a pod is its
metadata and status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from types import CodeType, CoroutineType
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client.configuration import Configuration

from penstock.kube import connection
from penstock.kube.kinds import LLM_BACKEND, Kind
from penstock.reconcile.audit import MANAGED
from penstock.reconcile.cache import Cache, keys_of
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key, Object, key_of
from penstock.runtime.streams import Streams

# A load balancer may drop a connection silently: end streams before that can matter, and notice dead ones.
WATCH_SERVER_TIMEOUT_SECONDS = 90
WATCH_CLIENT_TIMEOUT_SECONDS = 100
WATCH_SILENCE_SECONDS = 120.0
"""Longer than a watch lives, so that it never passes: kopf's own timer for silent watches also runs while an event is
handed on, and one that ends then ends the watch for good, with no word to anybody."""

CONNECT_TIMEOUT_SECONDS = 5
REQUEST_TIMEOUT_SECONDS = 30
PAGE_SIZE = 500
STOP_SECONDS = 3.0
STOP_TRIES = 3
IDLE_SECONDS = 1.0
"""How long kopf keeps a task for an object that no event concerns any more; after a start there is one for each."""

RETRY_SECONDS = (0.5, 1, 2, 4, 8, 16)

_log = logging.getLogger(__name__)


class _NoDiff(kopf.DiffBaseStorage):
    """Keeps kopf from comparing an object with what it was: it would copy each one twice, and no handler asks."""

    def build(self, **_: object) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: object) -> None:
        return None

    def store(self, **_: object) -> None:
        raise AssertionError("nothing is ever handled that would be stored")


class WatchFailed(Exception):  # noqa: N818 - says what happened
    """The event source has ended; it can be started again."""


async def run(
    configuration: Configuration,
    cache: Cache,
    queue: WorkQueue[Key],
    *,
    namespaces: Sequence[str],
    kinds: Iterable[Kind],
    streams: Streams,
    on_started: Callable[[], None],
) -> None:
    """Feed the cache and the queue until cancelled.

    Args:
        configuration: Where the API server is and who we are.
        cache: Told of every object.
        queue: Gets the backends that an event concerns.
        namespaces: Where to watch; empty means everywhere.
        kinds: What to watch; all of them must be served.
        streams: Told of every request.
        on_started: Called when kopf has installed its signal handlers, to put others in their place.

    Raises:
        WatchFailed: A watch has failed for good.
    """
    kinds = tuple(kinds)
    asyncio.get_running_loop().set_exception_handler(_hide_debris)
    streams.expect(kind.path(namespace) for kind in kinds for namespace in namespaces or (None,))
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_login(configuration, streams))
    for kind in kinds:
        handler = _handler(kind, cache, queue)
        kopf.on.event(
            kind.group, kind.version, kind.plural, registry=registry, id=kind.plural, when=_is_news(kind, cache)
        )(handler)
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=_settings(kinds),
        # Else kopf looks the user up by number, and in a pod there is none. Its own type for this is private.
        identity="penstock",  # type: ignore[arg-type]
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
    )
    on_started()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except Exception as error:
        # kopf has no common root for what ends it: watch errors, refused requests, failed logins.
        raise WatchFailed(f"{type(error).__name__}: {error}") from error
    finally:
        # kopf's own way to run its tasks ends with all younger tasks of the process, whosoever they are.
        await _ended(tasks)
    raise WatchFailed("kopf has ended by itself")


def _hide_debris(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what went wrong in the loop, except for what kopf leaves behind when one of its watches has failed.

    Its generators complain when they are closed half-way, its callbacks when no task runs any more, and the errors of
    all watches but the first are retrieved by nobody. The first is the one that is told.
    """
    if _is_kopf_s(context):
        _log.debug("while kopf ended: %s", context.get("exception"))
    else:
        loop.default_exception_handler(context)


def _is_kopf_s(context: dict[str, Any]) -> bool:
    generator, task, error = context.get("asyncgen"), context.get("future"), context.get("exception")
    if generator is not None:
        return _in_kopf(generator.ag_code)
    if isinstance(task, asyncio.Task):
        return _runs_kopf(task)
    trace = error.__traceback__ if "handle" in context and error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _in_kopf(trace.tb_frame.f_code)


def _in_kopf(code: CodeType) -> bool:
    return f"/{kopf.__name__}/" in code.co_filename


def _runs_kopf(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return isinstance(coroutine, CoroutineType) and _in_kopf(coroutine.cr_code)


async def _ended(tasks: Collection[asyncio.Task[None]], *, stop_seconds: float = STOP_SECONDS) -> None:
    """Cancel kopf's tasks and wait for them, for a while.

    Once is the rule: cancelled twice they leave connections open. But a watch that has ended by itself at that very
    moment swallows it and goes on, and those who wait for it with it, so whatever still runs is cancelled again.
    """
    left: Collection[asyncio.Task[Any]] = tasks
    with _silence():
        for _ in range(STOP_TRIES):
            for task in left:
                task.cancel()
            await _wait(left, stop_seconds)
            # There is one kopf in a loop, so all that run its code were started by these.
            left = {task for task in asyncio.all_tasks() if _runs_kopf(task)}.union(tasks)
            left = {task for task in left if not task.done()}
            if not left:
                return
    _log.error("kopf does not end: %s", ", ".join(sorted(task.get_name() for task in left)))


async def _wait(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for all of these, even when cancelled meanwhile."""
    deadline = asyncio.get_running_loop().time() + seconds
    while (left := deadline - asyncio.get_running_loop().time()) > 0 and not all(task.done() for task in tasks):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, timeout=left)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Let kopf log nothing: when it ends, requests of its own under way fail, and it reports each as an error."""
    logger = logging.getLogger(kopf.__name__)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def take(kind: Kind, event_type: str | None, obj: Object, *, cache: Cache, queue: WorkQueue[Key]) -> None:
    """Enter one event into the cache, and its backend into the queue if the event told anything new."""
    obj = {"apiVersion": kind.api_version, "kind": kind.name, **obj}
    if event_type == "DELETED":
        before = cache.get(kind, key_of(obj))
        concerned = keys_of(kind, (obj, before or obj)) if cache.remove(kind, obj) else set()
    else:
        concerned = cache.take(kind, obj)
    for key in concerned:
        queue.add(key)


def _is_news(kind: Kind, cache: Cache) -> Callable[..., bool]:
    """Return kopf's condition for calling a handler, which leaves out the echoes of own writes: they are the most."""

    def is_news(event: kopf.RawEvent, **_: object) -> bool:
        return event["type"] == "DELETED" or not cache.holds(kind, dict(event["object"]))

    return is_news


def _handler(kind: Kind, cache: Cache, queue: WorkQueue[Key]) -> Callable[..., Awaitable[None]]:
    async def handle(event: kopf.RawEvent, **_: object) -> None:
        take(kind, event["type"], dict(event["object"]), cache=cache, queue=queue)

    return handle


def _login(configuration: Configuration, streams: Streams) -> Callable[..., Awaitable[kopf.AiohttpSession]]:
    async def login(**_: object) -> kopf.AiohttpSession:
        # Asked again whenever the API server answers 401, and a rotated token is re-read here. kopf closes the session.
        bearer = await configuration.get_api_key_with_prefix("BearerToken")
        session = connection.session(
            configuration,
            connections=0,
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS),
            headers={"Authorization": bearer} if bearer else None,
            trace=streams.trace(),
        )
        return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)

    return login


def _settings(kinds: Iterable[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = _NoDiff()
    # Which kinds exist is checked before; looking for new ones would need rights on CRDs.
    settings.scanning.disabled = True
    settings.watching.server_timeout = WATCH_SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = WATCH_CLIENT_TIMEOUT_SECONDS
    settings.watching.inactivity_timeout = WATCH_SILENCE_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.networking.error_backoffs = RETRY_SECONDS
    # kopf would kill its own process with SIGKILL; kubelet's grace period already does that, and tests live here too.
    settings.process.ultimate_exiting_timeout = None
    selector = ",".join(f"{name}={value}" for name, value in MANAGED.items())
    for kind in kinds:
        if kind != LLM_BACKEND:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = selector
    return settings
