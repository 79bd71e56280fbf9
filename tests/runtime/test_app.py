"""The start of the operator when something is missing, against API servers that are not there or not complete."""

import asyncio
import subprocess
import sys

import aiohttp
import pytest
from aiohttp import web

from penstock.kube.election import LeadershipLost
from penstock.kube.errors import ConfigurationError
from penstock.runtime.app import Operator, StartFailed
from penstock.runtime.ending import EXIT_STUCK
from penstock.runtime.keeper import Keeper
from penstock.runtime.settings import OperatorSettings
from penstock.runtime.supervision import TaskEnded

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


@pytest.fixture
def make_operator(tmp_path):
    def make(url, **settings):
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(url=url))
        defaults = {"image": "penstock:1", "listen_address": "127.0.0.1", "health_port": 0, "metrics_port": 0}
        return Operator(OperatorSettings(kubeconfig=path, **defaults | settings))

    return make


async def serve(application):
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


class LameApiServer:
    """Lists nothing, keeps what is created, and serves no kind to kopf, so that no watch ever begins.

    Attributes:
        away: Every request fails.
    """

    def __init__(self):
        self.away = False
        self._kept = {}
        self._version = 0
        self._fixed = {"/api": {"versions": []}, "/apis": {"groups": []}, "/version": {"minor": "34"}}

    async def handle(self, request):
        if self.away:
            return web.json_response({"kind": "Status", "message": "starting"}, status=503)
        if request.method in ("POST", "PUT"):
            obj = await request.json()
            self._version += 1
            obj["metadata"] |= {"uid": obj["metadata"]["name"], "resourceVersion": str(self._version)}
            self._kept[f"{request.path}/{obj['metadata']['name']}" if request.method == "POST" else request.path] = obj
            return web.json_response(obj)
        if request.path.rpartition("/")[2] in ("v1", "penstock-operator", "penstock-drain-key", "penstock-push-key"):
            kept = self._kept.get(request.path, {"kind": "Status", "message": "not found"})
            return web.json_response(kept, status=200 if request.path in self._kept else 404)
        return web.json_response(self._fixed.get(request.path, {"metadata": {"resourceVersion": "1"}, "items": []}))


@pytest.fixture
async def lame_api_server():
    lame = LameApiServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", lame.handle)
    runner, lame.url = await serve(application)
    yield lame
    await runner.cleanup()


async def until(holds):
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - what is waited for is on the other side of HTTP
            await asyncio.sleep(0.05)


@pytest.fixture
async def health():
    """Return a function that asks an operator for its health."""
    async with aiohttp.ClientSession() as session:

        async def ask(operator, path="/healthz"):
            async with session.get(f"http://127.0.0.1:{operator.ports[0]}{path}") as answer:
                return answer.status, await answer.text()

        yield ask


async def test_a_dead_watch_makes_it_sick_as_long_as_the_api_server_answers(make_operator, lame_api_server, health):
    times = {"lease_duration_seconds": 3, "lease_renew_deadline_seconds": 2.5, "lease_retry_seconds": 0.2}
    operator = make_operator(lame_api_server.url, watch_patience_seconds=1, **times)
    running = asyncio.create_task(operator.run())

    async def leading():
        return operator.leading

    async def sick():
        return (await health(operator))[0] == 503

    await until(leading)
    assert await health(operator, "/readyz") == (200, "ok\n")
    await until(sick)
    _status, text = await health(operator)
    assert "no sign of life" in text
    operator.stop()
    await asyncio.wait_for(running, 30)


async def test_while_the_api_server_is_away_a_silent_watch_is_no_sickness(make_operator, lame_api_server, health):
    operator = make_operator(lame_api_server.url, watch_patience_seconds=1)
    operator._answered_at = float("-inf")
    operator._keeper = type("Keeper", (), {"oldest_watch_seconds": 3600.0})()
    assert operator._sick() == ""
    operator._requested("get", "Lease", "Unavailable")
    assert operator._sick() == ""
    operator._requested("get", "Lease", "ok")
    assert "3600 s" in operator._sick()


async def test_a_leader_that_cannot_renew_ends_with_an_error_and_gives_nothing_back(make_operator, lame_api_server):
    times = {"lease_duration_seconds": 2, "lease_renew_deadline_seconds": 1, "lease_retry_seconds": 0.2}
    operator = make_operator(lame_api_server.url, **times)
    running = asyncio.create_task(operator.run())

    async def leading():
        return operator.leading

    await until(leading)
    lame_api_server.away = True
    with pytest.raises(LeadershipLost, match="no renewal"):
        await asyncio.wait_for(running, 60)
    assert not operator.leading


@pytest.fixture
async def empty_api_server():
    """An API server without the CRD."""
    application = web.Application()

    async def not_found(_request):
        message = "the server could not find the requested resource"
        return web.json_response({"kind": "Status", "message": message}, status=404)

    application.router.add_route("*", "/{path:.*}", not_found)
    runner, url = await serve(application)
    yield url
    await runner.cleanup()


async def test_without_the_crd_it_says_what_to_apply(make_operator, empty_api_server):
    operator = make_operator(empty_api_server, start_patience_seconds=0)
    with pytest.raises(StartFailed, match="LLMBackend is not installed; apply the CRD"):
        await operator.run()


async def test_a_missing_crd_is_waited_for(make_operator, empty_api_server):
    operator = make_operator(empty_api_server, start_patience_seconds=3600)
    running = asyncio.create_task(operator.run())
    await asyncio.sleep(0.5)
    assert not running.done()
    assert not operator.ready
    operator.stop()
    await asyncio.wait_for(running, 10)


async def test_an_api_server_that_is_away_is_waited_for_and_a_stop_ends_it(make_operator, unused_tcp_port):
    operator = make_operator(f"http://127.0.0.1:{unused_tcp_port}", start_patience_seconds=0)
    running = asyncio.create_task(operator.run())
    await asyncio.sleep(0.5)
    assert not running.done()
    assert len(operator.ports) == 2
    operator.stop()
    await asyncio.wait_for(running, 10)


async def test_a_port_in_use_is_an_error_at_once(make_operator, empty_api_server):
    port = int(empty_api_server.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        await make_operator(empty_api_server, health_port=port).run()


async def test_no_kubeconfig_is_an_error_at_once(tmp_path):
    operator = Operator(OperatorSettings(image="penstock:1", kubeconfig=tmp_path / "absent"))
    with pytest.raises(ConfigurationError):
        await operator.run()


async def test_without_its_keeper_the_operator_ends(make_operator, lame_api_server, monkeypatch):
    async def ends(_keeper):
        return None

    monkeypatch.setattr(Keeper, "run", ends)
    with pytest.raises(TaskEnded, match="keeper"):
        await asyncio.wait_for(make_operator(lame_api_server.url).run(), 60)


SCRIPT = """
import asyncio
from penstock.runtime import app
from penstock.runtime.settings import OperatorSettings

async def deaf():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def run(operator):
    operator.left_behind = asyncio.create_task(deaf(), name="a deaf task")
    operators.append(operator)
    await asyncio.sleep(0)
    {then}

operators = []
app.Operator.run = run
app.run(OperatorSettings(image="penstock:1"))
"""
ENDS = {
    "it was asked to": ("pass", "do not end (a deaf task)"),
    "it had to": ("raise OSError('the port is taken')", "the port is taken"),
}


@pytest.mark.parametrize(("then", "told"), ENDS.values(), ids=ENDS.keys())
def test_a_process_ends_with_an_error_when_something_in_it_does_not_end(then, told):
    script = SCRIPT.format(then=then)
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == EXIT_STUCK
    assert told in process.stderr
    assert "Traceback" not in process.stderr
