"""What goes over the wire, against an HTTP server that remembers what it was asked."""

import asyncio
import json

import pytest
import yaml
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from penstock.kube import errors
from penstock.kube.client import KubernetesClient
from penstock.kube.kinds import CONFIG_MAP, LLM_BACKEND
from penstock.kube.pace import Pace
from penstock.resources.objects import Key

KEY = Key("n", "x")
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n"}, "data": {"a": "b"}}
STORED = {"metadata": {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1"}}


class Server:
    """Answers every request with what the test has put into `answers`, or with a stored object."""

    def __init__(self):
        self.requests, self.answers = [], []
        self.asked = asyncio.Event()

    async def handle(self, request):
        self.requests.append(
            (request.method, request.path, dict(request.query), dict(request.headers), await request.text())
        )
        self.asked.set()
        answer = self.answers.pop(0) if self.answers else web.json_response(STORED)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return web.json_response(STORED)
        return answer


@pytest.fixture
async def server():
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
def calls():
    return []


@pytest.fixture
async def client(server, calls):
    configuration = Configuration(host=server.url)
    configuration.api_key["BearerToken"] = "Bearer secret"
    client = KubernetesClient(configuration, observe=lambda *call: calls.append(call))
    yield client
    await client.close()


def refusal(status, message="no", **headers):
    return web.json_response({"kind": "Status", "message": message}, status=status, headers=headers)


async def test_apply_is_a_forced_apply_patch_under_one_manager(server, client, calls):
    assert await client.apply(OBJECT) == STORED
    ((method, path, query, headers, body),) = server.requests
    assert (method, path) == ("PATCH", "/api/v1/namespaces/n/configmaps/x")
    assert query == {"fieldManager": "penstock", "force": "true"}
    assert headers["Content-Type"].partition(";")[0] == "application/apply-patch+yaml"
    assert headers["Authorization"] == "Bearer secret"
    assert json.loads(body) == OBJECT
    assert calls == [("apply", "ConfigMap", "ok")]


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f680",
        "a \U0010ffff\U00010000 b",
        "\\ud83d\\ude80",
        "\\\U0001f680",
        "\x00\x1f\x7f\x85\u2028\ufffe",
        "\"'\\\n\t",
    ],
    ids=["emoji", "last and first pair", "only looks like a pair", "after a backslash", "control", "quotes"],
)
async def test_an_apply_is_valid_yaml_whatever_text_it_carries(server, client, text):
    await client.apply({**OBJECT, "data": {text: text}})
    assert yaml.safe_load(server.requests[0][4])["data"] == {text: text}


async def test_status_is_applied_to_its_subresource(server, client):
    body = {"apiVersion": LLM_BACKEND.api_version, "kind": "LLMBackend", "metadata": {"name": "x", "namespace": "n"}}
    await client.patch_status(body)
    assert server.requests[0][1].endswith("/namespaces/n/llmbackends/x/status")


async def test_a_merge_patch_is_pinned_to_the_object(server, client):
    await client.patch(CONFIG_MAP, KEY, {"metadata": {"resourceVersion": "7"}, "spec": {"a": None}}, uid="u")
    _method, _path, query, headers, body = server.requests[0]
    assert query == {"fieldManager": "penstock"}
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(body) == {"spec": {"a": None}, "metadata": {"resourceVersion": "7", "uid": "u"}}


async def test_create_posts_to_the_collection(server, client):
    await client.create(OBJECT)
    assert server.requests[0][:2] == ("POST", "/api/v1/namespaces/n/configmaps")


async def test_delete_carries_the_uid_and_is_content_with_nothing_there(server, client):
    server.answers = [refusal(404)]
    await client.delete(CONFIG_MAP, KEY, uid="u")
    method, path, _query, _headers, body = server.requests[0]
    assert (method, path) == ("DELETE", "/api/v1/namespaces/n/configmaps/x")
    assert json.loads(body)["preconditions"] == {"uid": "u"}


async def test_a_list_follows_its_pages_and_names_its_items(server, client):
    a, b = ({"metadata": STORED["metadata"] | {"name": name}} for name in ("a", "b"))
    pages = [{"metadata": {"continue": "token"}, "items": [a]}, {"metadata": {}, "items": [b]}]
    server.answers = [web.json_response(page) for page in pages]
    listed = await client.list(CONFIG_MAP, labels={"b": "2", "a": "1"})
    assert [item["metadata"]["name"] for item in listed] == ["a", "b"]
    assert {(item["apiVersion"], item["kind"]) for item in listed} == {("v1", "ConfigMap")}
    first, second = (request[2] for request in server.requests)
    assert first == {"limit": "500", "labelSelector": "a=1,b=2"}
    assert second == first | {"continue": "token"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(404), errors.NotFound),
        (refusal(409), errors.Conflict),
        (refusal(422), errors.Invalid),
        (refusal(503), errors.Unavailable),
        (web.Response(status=502, text="<html>bad gateway</html>"), errors.Unavailable),
        (web.Response(status=200, text="<html>a login page</html>"), errors.Unavailable),
        (web.Response(status=200, text="[]"), errors.Unavailable),
        (web.json_response({}), errors.Unavailable),
        (web.json_response({"metadata": []}), errors.Unavailable),
        (web.json_response({"metadata": {"name": "x", "uid": "u"}}), errors.Unavailable),
        (web.json_response({"metadata": {"name": "x", "uid": "u", "resourceVersion": 1}}), errors.Unavailable),
    ],
    ids=[
        "404",
        "409",
        "422",
        "503",
        "gateway",
        "no JSON",
        "no object",
        "no metadata",
        "other metadata",
        "no version",
        "other version",
    ],
)
async def test_bad_answers_become_errors_and_are_counted(server, client, calls, answer, kind):
    server.answers = [answer]
    with pytest.raises(kind, match="get ConfigMap n/x"):
        await client.get(CONFIG_MAP, KEY)
    assert calls == [("get", "ConfigMap", kind.__name__)]


NO_LISTS = {
    "nothing": {},
    "no items": {"metadata": {}},
    "items of another kind": {"metadata": {}, "items": "x"},
    "no metadata": {"items": []},
    "an item without a name": {"metadata": {}, "items": [STORED, {"metadata": {}}]},
    "an item that is no object": {"metadata": {}, "items": [None]},
}


@pytest.mark.parametrize("answer", NO_LISTS.values(), ids=NO_LISTS.keys())
async def test_a_list_of_another_shape_is_a_failure_of_the_api_server(server, client, calls, answer):
    server.answers = [web.json_response(answer)]
    with pytest.raises(errors.Unavailable, match=r"list ConfigMap in all namespaces: .* answered with"):
        await client.list(CONFIG_MAP)
    assert calls == [("list", "ConfigMap", "Unavailable")]


@pytest.mark.parametrize("verb", ["apply", "create", "patch", "status", "replace"])
async def test_a_write_that_is_answered_with_another_shape_is_not_taken_for_done(server, client, verb):
    server.answers = [web.json_response({})]
    with pytest.raises(errors.Unavailable, match="without metadata"):
        await WRITES[verb](client)


async def test_what_a_delete_is_answered_with_does_not_matter(server, client):
    server.answers = [web.json_response({"kind": "Status"})]
    await client.delete(CONFIG_MAP, KEY, uid="u")


async def test_a_pause_asked_for_is_passed_on(server, client):
    server.answers = [refusal(429, **{"Retry-After": "3"})]
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(CONFIG_MAP, KEY)
    assert caught.value.retry_after_seconds == 3


async def test_no_answer_in_time_is_unavailable(server):
    client = KubernetesClient(Configuration(host=server.url), timeout_seconds=0.2)
    server.answers = [5.0]
    with pytest.raises(errors.Unavailable, match="no answer"):
        await client.get(CONFIG_MAP, KEY)
    await client.close()


async def test_nobody_there_is_unavailable(unused_tcp_port):
    client = KubernetesClient(Configuration(host=f"http://127.0.0.1:{unused_tcp_port}"))
    with pytest.raises(errors.Unavailable, match="cannot reach"):
        await client.get(CONFIG_MAP, KEY)
    await client.close()


class Leadership:
    """A guard that can be lost at any moment."""

    def __init__(self):
        self.lost, self.asked = False, 0

    def check(self):
        self.asked += 1
        if self.lost:
            raise errors.NotLeading("lost")


@pytest.fixture
def leadership():
    return Leadership()


@pytest.fixture
async def fenced(server, leadership):
    client = KubernetesClient(Configuration(host=server.url), guard=leadership.check, connections=1)
    yield client
    await client.close()


WRITES = {
    "apply": lambda client: client.apply(OBJECT),
    "create": lambda client: client.create(OBJECT),
    "delete": lambda client: client.delete(CONFIG_MAP, KEY, uid="u"),
    "patch": lambda client: client.patch(CONFIG_MAP, KEY, {}, uid="u"),
    "status": lambda client: client.patch_status(OBJECT),
    "replace": lambda client: client.replace(OBJECT),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
async def test_without_the_lead_nothing_is_written(server, fenced, leadership, write):
    leadership.lost = True
    with pytest.raises(errors.NotLeading, match="lost"):
        await write(fenced)
    assert server.requests == []
    leadership.lost = False
    await write(fenced)
    assert len(server.requests) == 1


async def test_reads_need_no_lead(server, fenced, leadership):
    leadership.lost = True
    await fenced.get(CONFIG_MAP, KEY)
    server.answers = [web.json_response({"metadata": {}, "items": []})]
    await fenced.list(CONFIG_MAP)
    assert len(server.requests) == 2
    assert leadership.asked == 0


async def test_a_write_that_waits_for_a_connection_is_fenced_off_when_its_turn_comes(server, fenced, leadership):
    """The process is stopped while one request is under way and others wait for its connection."""
    server.answers = [0.3]
    first = asyncio.create_task(fenced.apply(OBJECT))
    await server.asked.wait()
    waiting = [asyncio.create_task(fenced.apply(OBJECT)) for _ in range(5)]
    await asyncio.sleep(0.05)
    leadership.lost = True
    assert await first == STORED
    for end in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(end, errors.NotLeading)
    assert len(server.requests) == 1


async def test_a_write_that_waits_in_the_pace_is_fenced_off_when_its_turn_comes(server, leadership):
    pace = Pace(writes_per_second=5, burst=1)
    client = KubernetesClient(Configuration(host=server.url), guard=leadership.check, pace=pace)
    await client.apply(OBJECT)
    waiting = asyncio.create_task(client.apply(OBJECT))
    await asyncio.sleep(0.05)
    leadership.lost = True
    with pytest.raises(errors.NotLeading):
        await waiting
    assert len(server.requests) == 1
    await client.close()


async def test_an_answer_429_pauses_every_request(server):
    client = KubernetesClient(Configuration(host=server.url), pace=Pace(writes_per_second=1000, burst=1000))
    server.answers = [refusal(429, **{"Retry-After": "1"})]
    with pytest.raises(errors.TooManyRequests):
        await client.get(CONFIG_MAP, KEY)
    loop = asyncio.get_running_loop()
    asked = loop.time()
    await client.apply(OBJECT)
    assert loop.time() - asked > 0.5
    await client.close()


async def test_a_replacement_carries_the_object_as_it_was_read(server, client):
    obj = {**OBJECT, "metadata": {**OBJECT["metadata"], "resourceVersion": "7"}}
    await client.replace(obj)
    method, path, _query, _headers, body = server.requests[0]
    assert (method, path) == ("PUT", "/api/v1/namespaces/n/configmaps/x")
    assert json.loads(body) == obj


async def test_what_the_server_says_of_itself_is_read_by_path(server, client, calls):
    server.answers = [web.json_response({"minor": "34"})]
    assert await client.read("/version") == {"minor": "34"}
    assert server.requests[0][:2] == ("GET", "/version")
    assert calls == [("read", "", "ok")]
