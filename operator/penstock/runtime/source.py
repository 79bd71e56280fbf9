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
import logging
from collections.abc import Awaitable, Callable, Sequence

import kopf
from kubernetes.aio.client.configuration import Configuration

from penstock.kube.kinds import LLM_BACKEND, Kind
from penstock.reconcile.audit import MANAGED, WATCHED_KINDS
from penstock.reconcile.cache import Cache, backend_of
from penstock.reconcile.queue import WorkQueue
from penstock.resources.objects import Key, Object

# A load balancer may drop a connection silently: end streams before that can matter, and notice dead ones.
WATCH_SERVER_TIMEOUT_SECONDS = 300
WATCH_CLIENT_TIMEOUT_SECONDS = 310
CONNECT_TIMEOUT_SECONDS = 5
REQUEST_TIMEOUT_SECONDS = 30
PAGE_SIZE = 500
RETRY_SECONDS = (0.5, 1, 2, 4, 8, 16)
STOP_SECONDS = 2.0

_log = logging.getLogger(__name__)


class WatchFailed(Exception):  # noqa: N818 - says what happened
    """The event source cannot go on."""


async def run(
    configuration: Configuration,
    cache: Cache,
    queue: WorkQueue[Key],
    *,
    namespaces: Sequence[str],
    stop: asyncio.Event,
    on_started: Callable[[], None],
    on_stopping: Callable[[], Awaitable[None]],
) -> None:
    """Feed the cache and the queue until `stop` is set.

    Args:
        configuration: Where the API server is and who we are.
        cache: Told of every object.
        queue: Gets the backends that an event concerns.
        namespaces: Which to watch; empty means all.
        stop: Ends the run.
        on_started: Called when kopf has installed its signal handlers, to put others in their place.
        on_stopping: Called when watching has ended. kopf then waits for all other tasks made since its start, so this
            is the place to end them.

    Raises:
        WatchFailed: A watch has failed for good; the process should end and be started again.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(_login(configuration))
    kopf.on.cleanup(registry=registry, id="stopping")(_ignoring_arguments(on_stopping))
    for kind in WATCHED_KINDS:
        handler = _handler(kind, cache, queue)
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(handler)
    watching = asyncio.create_task(_watch(registry, namespaces, stop, on_started), name="kopf")
    stopping = asyncio.create_task(stop.wait(), name="stop of kopf")
    try:
        await asyncio.wait((watching, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            _expect_debris()
            # An orderly stop takes milliseconds, unless kopf is still starting: then it would try its requests again.
            _done, late = await asyncio.wait((watching,), timeout=STOP_SECONDS)
            if late:
                watching.cancel()
        await watching
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    except Exception as error:
        # kopf has no common root for what ends it: watch errors, refused requests, failed logins. After a stop, what
        # ends it is that its connections are closed.
        if not stop.is_set():
            raise WatchFailed(f"watching the cluster has failed: {type(error).__name__}: {error}") from error
    finally:
        stopping.cancel()
        watching.cancel()
        await asyncio.gather(stopping, watching, return_exceptions=True)


def _expect_debris() -> None:
    """Log at DEBUG what kopf leaves when it is stopped while it starts: failed requests, generators cut short."""
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: _log.debug("while stopping: %s", context))


async def _watch(
    registry: kopf.OperatorRegistry, namespaces: Sequence[str], stop: asyncio.Event, on_started: Callable[[], None]
) -> None:
    older = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=_settings(),
        # Else kopf looks the user up by number, and in a pod there is none. Its own type for this is private.
        identity="penstock",  # type: ignore[arg-type]
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
    )
    on_started()
    await kopf.run_tasks(tasks, ignored=older)


def take(kind: Kind, event_type: str | None, obj: Object, *, cache: Cache, queue: WorkQueue[Key]) -> None:
    """Enter one event into the cache, and its backend into the queue if the event told anything new."""
    obj = {"apiVersion": kind.api_version, "kind": kind.name, **obj}
    backend = backend_of(kind, obj)
    before = cache.get(kind, Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
    former = backend_of(kind, before) if before is not None else None
    changed = cache.remove(kind, obj) if event_type == "DELETED" else cache.store(kind, obj)
    if changed:
        for key in {backend, former} - {None}:
            queue.add(key)  # type: ignore[arg-type]


def _handler(kind: Kind, cache: Cache, queue: WorkQueue[Key]) -> Callable[..., Awaitable[None]]:
    async def handle(event: kopf.RawEvent, **_: object) -> None:
        take(kind, event["type"], dict(event["object"]), cache=cache, queue=queue)

    return handle


def _login(configuration: Configuration) -> Callable[..., Awaitable[kopf.ConnectionInfo]]:
    async def login(**_: object) -> kopf.ConnectionInfo:
        # Asked again whenever the API server answers 401, and a rotated token is re-read here.
        bearer = await configuration.get_api_key_with_prefix("BearerToken")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            scheme="Bearer" if bearer else None,
            token=bearer.partition(" ")[2] if bearer else None,
            proxy_url=configuration.proxy,
            trust_env=True,
        )

    return login


def _ignoring_arguments(function: Callable[[], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def call(**_: object) -> None:
        await function()

    return call


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Which kinds exist is checked before; looking for new ones would need rights on CRDs.
    settings.scanning.disabled = True
    settings.watching.server_timeout = WATCH_SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = WATCH_CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.networking.error_backoffs = RETRY_SECONDS
    # kopf would kill its own process with SIGKILL; kubelet's grace period already does that, and tests live here too.
    settings.process.ultimate_exiting_timeout = None
    selector = ",".join(f"{name}={value}" for name, value in MANAGED.items())
    for kind in WATCHED_KINDS:
        if kind != LLM_BACKEND:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = selector
    return settings
