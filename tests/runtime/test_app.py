"""The start of the operator when something is missing, against API servers that are not there or not complete."""

import asyncio

import pytest
from aiohttp import web

from penstock.kube.errors import ConfigurationError
from penstock.runtime.app import Operator, StartFailed
from penstock.runtime.settings import OperatorSettings

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


@pytest.fixture
async def empty_api_server():
    """An API server without the CRD."""
    application = web.Application()

    async def not_found(_request):
        message = "the server could not find the requested resource"
        return web.json_response({"kind": "Status", "message": message}, status=404)

    application.router.add_route("*", "/{path:.*}", not_found)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_without_the_crd_it_says_what_to_apply(make_operator, empty_api_server):
    operator = make_operator(empty_api_server, start_patience_seconds=0)
    with pytest.raises(StartFailed, match=r"LLMBackend is not installed; apply deploy/install\.yaml"):
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
