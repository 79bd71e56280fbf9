"""A real server process: what its faults look like from outside, and how it starts and ends."""

import contextlib
import http.client
import json
import time
from pathlib import Path

import pytest

from e2e.conformance import normal, targets
from e2e.conformance.targets import Flock, Target, TargetError

FLAGS = ("--served-model-name", "tiny", "--max-model-len", "512")
JSON = {"content-type": "application/json"}
PATIENCE_SECONDS = 20.0


@pytest.fixture(scope="module")
def server():
    with targets.serve("fakevllm", FLAGS) as running:
        yield running


@pytest.fixture
def target(server):
    """The server that all tests share, without faults."""
    yield server
    server.send("DELETE", "/fault")


def body(**fields) -> bytes:
    return json.dumps({"prompt": "Hello", "max_tokens": 20, **fields}).encode()


def ask(target: Target, **fields) -> targets.Reply:
    return target.send("POST", "/v1/completions", data=body(**fields), headers=JSON)


def switch_on(target: Target, **fault) -> None:
    assert target.send("POST", "/fault", data=json.dumps(fault).encode()).status == 200


def eventually(holds) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False


def refuses(target: Target) -> bool:
    try:
        target.send("GET", "/health")
    except ConnectionRefusedError:
        return True
    return False


def gauge(target: Target, name: str) -> float:
    found = normal.samples(target.send("GET", "/metrics").text)
    return sum(value for metric, _, value in found if metric == f"vllm:{name}")


def test_a_hung_engine_answers_nothing_while_health_says_200_and_gauges_freeze(target):
    flock = Flock(target, "/v1/completions", [body(max_tokens=400)])
    flock.start()
    assert eventually(lambda: gauge(target, "num_requests_running") == 1)
    switch_on(target, kind="hang")
    time.sleep(0.3)
    steps = gauge(target, "iteration_tokens_total_count")
    time.sleep(0.3)
    assert gauge(target, "iteration_tokens_total_count") == steps
    assert gauge(target, "num_requests_running") == 1
    assert target.send("GET", "/health").status == 200
    assert flock.open == 1
    target.send("DELETE", "/fault")
    (reply,) = flock.join()
    assert isinstance(reply, targets.Reply)
    assert json.loads(reply.body)["usage"]["completion_tokens"] == 400


@pytest.fixture
def own_target():
    """A server that the test may ruin."""
    with targets.serve("fakevllm", FLAGS) as running:
        yield running


def test_a_dead_engine_fails_requests_and_health_and_ends_the_process_with_0(own_target):
    target = own_target
    flock = Flock(target, "/v1/completions", [body(max_tokens=400), body(max_tokens=400, stream=True)])
    flock.start()
    assert eventually(lambda: gauge(target, "num_requests_running") == 2)
    switch_on(target, kind="die")
    whole, stream = flock.join()
    assert isinstance(whole, targets.Reply)
    assert isinstance(stream, targets.Reply)
    assert whole.status == 500
    assert json.loads(whole.body)["error"]["type"] == "InternalServerError"
    assert '"code":500' in stream.text
    assert stream.text.endswith("data: [DONE]\n\n")
    assert target.send("GET", "/health").status == 503
    assert ask(target).status == 500
    assert target.wait() == 0


def test_a_cut_ends_the_connection_within_the_stream(target):
    switch_on(target, kind="cut", times=1, tokens=3)
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(target, stream=True)
    assert cut.value.partial.count(b"data: ") == 3
    assert ask(target, stream=True).text.endswith("[DONE]\n\n")


def test_an_aborted_answer_says_so(target):
    switch_on(target, kind="abort", times=1, tokens=2)
    answer = json.loads(ask(target).body)
    assert answer["choices"][0]["finish_reason"] == "abort"
    assert answer["usage"]["completion_tokens"] == 2
    assert eventually(lambda: gauge(target, "num_requests_running") == 0)


def test_errors_hit_as_many_requests_as_they_say(target):
    switch_on(target, kind="error", times=2)
    assert [ask(target).status for _ in range(3)] == [500, 500, 200]


def test_slow_tokens_take_longer(target):
    switch_on(target, kind="slow-tokens", seconds=0.1)
    began = time.monotonic()
    assert ask(target, max_tokens=5).status == 200
    assert time.monotonic() - began >= 0.5


def test_a_refusing_port_opens_again_and_open_streams_go_on(target):
    flock = Flock(target, "/v1/completions", [body(max_tokens=300, stream=True)])
    flock.start()
    assert eventually(lambda: gauge(target, "num_requests_running") == 1)
    switch_on(target, kind="refuse", seconds=1.0)
    assert eventually(lambda: refuses(target))
    (reply,) = flock.join()
    assert isinstance(reply, targets.Reply)
    assert reply.text.endswith("[DONE]\n\n")
    assert eventually(lambda: not refuses(target))
    assert ask(target).status == 200


def test_gauges_show_a_load_that_is_not_there_until_it_is_switched_off(target):
    switch_on(target, kind="load", waiting=10, kv_cache=0.95)
    assert (gauge(target, "num_requests_waiting"), gauge(target, "kv_cache_usage_perc")) == (10, 0.95)
    assert ask(target).status == 200
    assert (gauge(target, "num_requests_waiting"), gauge(target, "kv_cache_usage_perc")) == (10, 0.95)
    switch_on(target, kind="load", waiting=3)
    assert (gauge(target, "num_requests_waiting"), gauge(target, "kv_cache_usage_perc")) == (3, 0)
    target.send("DELETE", "/fault")
    assert gauge(target, "num_requests_waiting") == 0


def test_a_bad_fault_is_refused_with_a_reason(target):
    reply = target.send("POST", "/fault", data=b'{"kind": "explode"}')
    assert reply.status == 400
    assert "kind must be one of" in reply.text


def test_the_port_refuses_connections_until_the_engine_is_ready():
    began = time.monotonic()
    with targets.serve("fakevllm", FLAGS, variables={"FAKEVLLM_START_SECONDS": "1.5"}) as target:
        assert time.monotonic() - began >= 1.5
        assert target.send("GET", "/health").status == 200


def test_the_log_says_started_and_ready_in_vllm_words():
    with targets.serve("fakevllm", FLAGS) as target:
        log = target.log.read_text()
    assert "Started server process [" in log
    assert "Application startup complete." in log


def test_faults_can_be_there_from_the_start():
    faults = json.dumps([{"kind": "error", "times": 1}])
    with targets.serve("fakevllm", FLAGS, variables={"FAKEVLLM_FAULTS": faults}) as target:
        assert [ask(target).status for _ in range(2)] == [500, 200]


@pytest.mark.parametrize(
    ("variables", "flags", "complaint"),
    [
        ({"FAKEVLLM_FAULTS": "x"}, (), "FAKEVLLM_FAULTS"),
        ({"VLLM_PORT": "tcp://10.0.0.1:80"}, (), "VLLM_PORT"),
        ({"FAKEVLLM_VERSION": "0.17.1"}, ("--shutdown-timeout", "3"), "unrecognized arguments"),
        ({"FAKEVLLM_VERSION": "0.28.0"}, ("--max-num-queued-reqs", "3"), "unrecognized arguments"),
    ],
    ids=["faults", "service link", "flag of 0.18", "flag of 0.29"],
)
def test_a_start_that_cannot_work_ends_with_a_sentence(variables, flags, complaint):
    with pytest.raises(TargetError) as failed, targets.serve("fakevllm", (*FLAGS, *flags), variables=variables):
        pass
    log = str(failed.value).rsplit(" ", 1)[-1]
    text = Path(log).read_text()
    assert complaint in text
    assert "Traceback" not in text


def test_the_key_may_come_from_the_environment():
    with targets.serve("fakevllm", FLAGS, variables={"VLLM_API_KEY": "secret"}) as target:
        assert target.send("GET", "/v1/models").status == 401
        assert target.send("GET", "/v1/models", headers={"Authorization": "Bearer secret"}).status == 200


def test_silence_in_a_stream_is_filled_with_comments():
    flags = (*FLAGS, "--sse-keep-alive-interval", "0.1")
    with targets.serve("fakevllm", flags, variables={"FAKEVLLM_STEP_SECONDS": "0.35"}) as target:
        text = ask(target, stream=True, max_tokens=2).text
    assert ": keep-alive\n\n" in text
    assert text.endswith("data: [DONE]\n\n")


def test_a_client_that_leaves_frees_its_seat(target):
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", body=body(max_tokens=400), headers=JSON)
        assert eventually(lambda: gauge(target, "num_requests_running") == 1)
    assert eventually(lambda: gauge(target, "num_requests_running") == 0)
