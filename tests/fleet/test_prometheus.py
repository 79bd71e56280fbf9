"""Signals from Prometheus, asked over real connections: what is asked, what is made of answers, and what of none."""

import asyncio
import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e.cluster.pki import Authority
from penstock.api.engine import EngineType
from penstock.engines.facts import Aggregation, MetricName
from penstock.fleet import prometheus
from penstock.fleet.prometheus import THREADS, Connection, PrometheusSource, signals_in
from penstock.fleet.signals import Away, Replica, Subject

TOKEN = "a-secret-token"
WAITING = "vllm:num_requests_waiting"
KV = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


def series(name, value, *, pod="chat-0", age=1.0, **labels):
    """Return a series as Prometheus answers a range selector: its samples, the newest last."""
    now = time.time()
    values = [[now - age - 15, "0"], [now - age, str(value)]]
    return {"metric": {"__name__": name, "pod": pod, "namespace": "team", **labels}, "values": values}


def answer(*found):
    return {"status": "success", "data": {"resultType": "matrix", "result": list(found)}}


class Server(ThreadingHTTPServer):
    """A Prometheus that tells what it is set to.

    Attributes:
        found: Its series.
        asked: Path, query and headers of every request.
        respond: Writes the answer in place of the usual one.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.found = []
        self.asked = []
        self.respond = None
        self.released = threading.Event()

    @property
    def queries(self):
        return [query for _, query, _ in self.asked]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, parts = self.server, urlsplit(self.path)
        query = parse_qs(parts.query)["query"][0]
        server.asked.append((parts.path, query, dict(self.headers)))
        if server.respond is not None:
            server.respond(self)
            return
        selected = [one for one in server.found if one["metric"]["__name__"] in query]
        self.reply(json.dumps(answer(*selected)).encode())

    def reply(self, body, *, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        with contextlib.suppress(ConnectionError):  # who asked may be gone by now
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_arguments):
        """Say nothing."""


@pytest.fixture
def server():
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.released.set()
        made.shutdown()
        thread.join()


@pytest.fixture
def source_of(server):
    made = []

    def make(*, scheme="http", path="", **settings):
        url = f"{scheme}://127.0.0.1:{server.server_port}{path}"
        made.append(PrometheusSource(Connection(url=url, **{"timeout_seconds": 2.0} | settings)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def subject(namespace="team", engine=EngineType.VLLM, pods=("chat-0",)):
    replicas = tuple(Replica(name, f"uid of {name}", "10.0.0.1", ready=True) for name in pods)
    return Subject(namespace=namespace, engine=engine, replicas=replicas)


async def test_one_query_per_namespace_and_signal_selects_a_minute(server, source_of):
    source = source_of()
    await asyncio.gather(*(source.read(subject(pods=[f"chat-{n}"])) for n in range(20)))
    assert sorted(server.queries) == sorted(
        f'{{__name__=~"{names}",namespace="team"}}[60s]'
        for names in (WAITING, "vllm:num_requests_running", "|".join(KV))
    )


async def test_engines_and_namespaces_are_asked_apart(server, source_of):
    source = source_of()
    await source.read(subject())
    await source.read(subject("other"))
    await source.read(subject(engine=EngineType.LLAMA_CPP))
    assert sum('namespace="team"' in one for one in server.queries) == 5
    assert sum('namespace="other"' in one for one in server.queries) == 3
    assert sum("llamacpp:" in one for one in server.queries) == 2


async def test_an_answer_ages_while_it_is_shared(server, source_of):
    server.found = [series(WAITING, 4, age=5.0)]
    source = source_of(shared_seconds=60.0)
    ages = []
    for _ in range(2):
        ages.append((await source.read(subject()))["chat-0"].waiting.age_seconds)
        await asyncio.sleep(0.2)
    assert len(server.queries) == 3
    assert ages[1] >= ages[0] + 0.2


async def test_namespaces_of_which_nobody_asks_any_more_are_forgotten(server, source_of):
    source = source_of(shared_seconds=0.0)
    for name in ("a", "b", "c"):
        await source.read(subject(name))
        await asyncio.sleep(0.01)
    assert [namespace for namespace, _ in source._asked] == ["c"]


async def test_values_come_by_pod_with_their_age_and_only_of_those_asked_for(server, source_of):
    server.found = [
        series(WAITING, 7, age=9.0),
        series(WAITING, 3, pod="chat-1"),
        series(WAITING, 99, pod="stranger-0"),
        series(KV[0], 0.25),
    ]
    found = await source_of().read(subject(pods=("chat-0", "chat-1", "chat-2")))
    assert set(found) == {"chat-0", "chat-1"}
    assert found["chat-0"].waiting.value == 7
    assert found["chat-0"].waiting.age_seconds == pytest.approx(9.0, abs=2.0)
    assert (found["chat-0"].kv_cache_percent.value, found["chat-1"].waiting.value) == (25.0, 3.0)
    assert found["chat-1"].kv_cache_percent is None


@pytest.mark.parametrize("name", KV)
async def test_the_kv_cache_goes_by_both_names(server, source_of, name):
    server.found = [series(name, 0.95)]
    found = await source_of().read(subject())
    assert found["chat-0"].kv_cache_percent.value == pytest.approx(95.0)


WORDS = MetricName(names=(WAITING,), aggregation=Aggregation.SUM)
BOTH = MetricName(names=KV, aggregation=Aggregation.MAX)


@pytest.mark.parametrize(
    ("found", "metric", "expected"),
    [
        ([series(WAITING, 1, engine="0"), series(WAITING, 2, engine="1")], WORDS, 3.0),
        ([series(KV[0], 0.1, engine="0"), series(KV[0], 0.2, engine="1")], BOTH, 0.2),
        ([series(KV[1], 0.9), series(KV[0], 0.2)], BOTH, 0.2),
        ([series(WAITING, 1, job="a"), series(WAITING, 1, job="b")], WORDS, None),
        ([series(WAITING, 1, engine="0", job="a"), series(WAITING, 1, engine="0"), series(WAITING, 5)], WORDS, None),
        ([series(WAITING, "NaN")], WORDS, None),
        ([series(WAITING, "+Inf")], WORDS, None),
        ([series(WAITING, "NaN", engine="0"), series(WAITING, 2, engine="1")], WORDS, None),
        ([series(WAITING, "many")], WORDS, None),
        ([], WORDS, None),
        (None, WORDS, None),
        ({"chat-0": 1}, WORDS, None),
        ([7, {}, {"metric": {"__name__": WAITING}, "values": [[0, "1"]]}], WORDS, None),
        ([{"metric": {"__name__": WAITING, "pod": "chat-0"}, "values": []}], WORDS, None),
        ([{"metric": {"__name__": WAITING, "pod": "chat-0"}, "value": [0, "1"]}], WORDS, None),
        ([{"metric": {"__name__": WAITING, "pod": 7}, "values": [[0, "1"]]}], WORDS, None),
    ],
    ids=[
        "engines of a pod add up", "the fullest cache counts", "the newer name wins", "scraped twice", "twice in part",
        "NaN", "infinite", "NaN of one engine", "no number", "nothing", "null", "an object", "other shapes",
        "no samples", "an instant", "a pod that is no text",
    ],
)  # fmt: skip
def test_what_cannot_be_told_for_sure_is_unknown(found, metric, expected):
    signal = signals_in(found, metric, now=time.time()).get("chat-0")
    assert (signal and signal.value) == expected


async def test_headers_and_a_path_in_front_are_kept_and_the_token_is_read_again(server, source_of, tmp_path):
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    settings = {"headers": {"X-Scope-OrgID": "team-a"}, "bearer_token_file": token, "shared_seconds": 0.0}
    source = source_of(path="/prefix/", **settings)
    await source.read(subject())
    token.write_text("another")
    await source.read(subject())
    assert {path for path, _, _ in server.asked} == {"/prefix/api/v1/query"}
    assert {headers["X-Scope-OrgID"] for _, _, headers in server.asked} == {"team-a"}
    assert [headers["Authorization"] for _, _, headers in server.asked[::3]] == [f"Bearer {TOKEN}", "Bearer another"]


async def test_what_this_machine_says_of_proxies_and_passwords_does_not_count(server, source_of, tmp_path, monkeypatch):
    server.found = [series(WAITING, 3)]
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password other\n")
    for name, value in {"NETRC": str(netrc), "http_proxy": "http://127.0.0.1:1", "no_proxy": ""}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "token").write_text(TOKEN)
    found = await source_of(bearer_token_file=tmp_path / "token").read(subject())
    assert found["chat-0"].waiting.value == 3
    assert {headers["Authorization"] for _, _, headers in server.asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_an_answer_is_read_up_to_a_size_that_counts_when_it_is_unpacked(server, source_of, monkeypatch, encoding):
    plain = json.dumps(answer(series(WAITING, 3)) | {"padding": " " * 100_000}).encode()
    server.respond = status(
        200, gzip.compress(plain) if encoding == "gzip" else plain, **{"Content-Encoding": encoding}
    )
    monkeypatch.setattr(prometheus, "ANSWER_LIMIT_BYTES", len(plain))
    assert (await source_of().read(subject()))["chat-0"].waiting.value == 3
    monkeypatch.setattr(prometheus, "ANSWER_LIMIT_BYTES", len(plain) - 1)
    with pytest.raises(Away, match=": ValueError"):
        await source_of().read(subject())


def status(code, body=b"an error", **headers):
    return lambda handler: handler.reply(body, status=code, **headers)


@pytest.mark.parametrize(
    ("respond", "said"),
    [
        (status(500, TOKEN.encode()), "HTTP Status Code 500"),
        (status(401), "HTTP Status Code 401"),
        (status(302, Location="/elsewhere"), "HTTP Status Code 302"),
        (status(200, b"<html>sign in</html>"), "JSONDecodeError"),
        (status(200, b'{"status": "success"}'), "KeyError"),
        (status(200, b"[]"), "TypeError"),
        (status(200, b'{"data": null}'), "TypeError"),
        (status(200, b"[" * 100_000), "RecursionError"),
        (status(200, b"\xff\xfe\xff"), ""),
        (status(200, b"{}", **{"Content-Encoding": "gzip"}), "DecodeError"),
        (lambda handler: handler.wfile.write(b"no HTTP\r\n\r\n"), "ConnectionError"),
        (lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), "ConnectionError"),
    ],
    ids=[
        "500", "401", "a redirect", "a page", "no data", "a list", "null", "deep", "no text", "no gzip", "no HTTP",
        "closed",
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_said_in_a_few_words(server, source_of, respond, said, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    server.respond = respond
    with pytest.raises(Away) as away:
        await source_of(bearer_token_file=tmp_path / "token").read(subject())
    assert said in str(away.value)
    assert TOKEN not in str(away.value)
    server.respond = None


async def test_a_result_of_another_shape_is_unknown(server, source_of):
    server.respond = status(200, json.dumps({"data": {"result": {"no": "list"}}}).encode())
    assert await source_of().read(subject()) == {}


@pytest.mark.parametrize("content", [None, "two\nlines", b"\xff"], ids=["missing", "two lines", "no text"])
async def test_a_token_that_cannot_be_used_is_said_without_it(source_of, tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Away) as away:
        await source_of(bearer_token_file=path).read(subject())
    assert "two" not in str(away.value)


def test_a_prometheus_that_is_not_there_is_away():
    source = PrometheusSource(Connection(url="http://127.0.0.1:1", timeout_seconds=1.0))
    with pytest.raises(Away, match="ConnectionError"):
        asyncio.run(source.read(subject()))
    source.close()


def hang(handler):
    handler.server.released.wait(30)


def drip(handler):
    """Answer a byte at a time, fast enough for every time-out of a socket."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    try:
        while not handler.server.released.wait(0.05):
            handler.wfile.write(b" ")
    except OSError:
        handler.server.released.set()


async def lag(seconds):
    """Return by how much the event loop was late at worst."""
    loop, worst = asyncio.get_running_loop(), 0.0
    end = loop.time() + seconds
    while loop.time() < end:
        due = loop.time() + 0.01
        await asyncio.sleep(0.01)
        worst = max(worst, loop.time() - due)
    return worst


@pytest.mark.parametrize("respond", [hang, drip])
async def test_one_that_hangs_is_away_in_time_for_all_and_holds_nobody_up(server, source_of, respond):
    server.respond = respond
    source = source_of(timeout_seconds=1.0, shared_seconds=60.0)
    began = time.monotonic()
    watch = asyncio.create_task(lag(0.3))
    reads = [source.read(subject(f"team-{n}")) for n in range(5 * THREADS)]
    ends = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(one, Away) for one in ends)
    assert time.monotonic() - began < 10.0  # one after the other they would take 40 s
    assert await watch < 0.8  # in the loop each would stop it for 1 s
    # Who asks again while the queries hang does not wait at all, and starts no other.
    await asyncio.sleep(0.3)
    asked, began = len(server.asked), time.monotonic()
    for n in range(5 * THREADS):
        with pytest.raises(Away):
            await source.read(subject(f"team-{n}"))
    assert len(server.asked) == asked < 3 * THREADS
    assert time.monotonic() - began < 10.0
    assert sum(thread.name.startswith("prometheus") for thread in threading.enumerate()) <= THREADS


async def test_all_queries_of_a_namespace_share_one_bound(server, source_of):
    server.respond = lambda handler: (time.sleep(0.3), handler.reply(json.dumps(answer()).encode()))
    source = source_of(timeout_seconds=0.7, shared_seconds=0.0)
    with pytest.raises(Away):
        await source.read(subject())
    await asyncio.sleep(0.5)
    assert len(server.asked) == 3
    server.respond = None
    assert await source.read(subject()) == {}


async def test_after_hanging_it_is_asked_again(server, source_of):
    server.respond = hang
    source = source_of(timeout_seconds=0.2, shared_seconds=0.0)
    with pytest.raises(Away):
        await source.read(subject())
    server.respond = None
    server.found = [series(WAITING, 4)]
    async with asyncio.timeout(10):
        while True:
            try:
                found = await source.read(subject())
                break
            except Away:
                await asyncio.sleep(0.05)
    assert found["chat-0"].waiting.value == 4


async def test_its_certificate_is_judged_by_the_file_that_is_named(server, source_of, tmp_path):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    pair = ours.issue("server", common_name="prometheus", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.found = [series(WAITING, 4)]
    found = await source_of(scheme="https", ca_file=ours.certificate).read(subject())
    assert found["chat-0"].waiting.value == 4
    with pytest.raises(Away, match="SSLError"):
        await source_of(scheme="https", ca_file=theirs.certificate).read(subject())
    with pytest.raises(Away, match="OSError"):
        await source_of(scheme="https", ca_file=tmp_path / "missing.crt").read(subject())
