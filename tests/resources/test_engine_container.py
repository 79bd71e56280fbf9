"""The engine's container: on loopback, probed and drained through the limiter."""

import hashlib

from tests.resources.pods import engine_of, environment, limiter_of


def test_all_probes_and_the_hook_go_to_the_limiters_admin_port_by_number(make_backend, template):
    rendered = template(make_backend())
    engine, limiter = engine_of(rendered), limiter_of(rendered)
    hooks = {
        "/engine/started": engine["startupProbe"],
        "/engine/alive": engine["livenessProbe"],
        "/drain": engine["lifecycle"]["preStop"],
        "/readyz": limiter["readinessProbe"],
        "/healthz": limiter["livenessProbe"],
    }
    for path, hook in hooks.items():
        assert (hook["httpGet"]["path"], hook["httpGet"]["port"]) == (path, 9901)


def test_readiness_adds_no_delay_of_its_own(make_backend, template):
    rendered = template(make_backend(health={"startupTimeoutSeconds": 90}))
    startup, readiness = engine_of(rendered)["startupProbe"], limiter_of(rendered)["readinessProbe"]
    assert (startup["periodSeconds"], startup["failureThreshold"]) == (1, 90)
    assert (readiness["periodSeconds"], readiness["failureThreshold"], readiness["successThreshold"]) == (1, 1, 1)


def test_a_failed_probe_does_not_wait_for_a_drain_that_cannot_end(make_backend, template):
    engine = engine_of(template(make_backend()))
    assert engine["startupProbe"]["terminationGracePeriodSeconds"] == 10
    assert engine["livenessProbe"]["terminationGracePeriodSeconds"] == 10


def test_a_restarting_limiter_does_not_cost_the_engine_its_model(make_backend, template):
    liveness = engine_of(template(make_backend()))["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120


def test_the_hook_carries_the_token_and_the_limiter_only_its_hash(make_backend, template):
    rendered = template(make_backend())
    (header,) = engine_of(rendered)["lifecycle"]["preStop"]["httpGet"]["httpHeaders"]
    assert header["name"] == "x-penstock-drain-token"
    sha256 = hashlib.sha256(header["value"].encode()).hexdigest()
    limiters = environment(limiter_of(rendered))
    assert limiters["PENSTOCK_DRAIN_TOKEN_SHA256"] == sha256
    assert header["value"] not in limiters.values()


def test_two_backends_have_two_tokens(settings):
    assert settings.drain_token("a") != settings.drain_token("b")
    assert settings.drain_token("a") == settings.drain_token("a")


def test_the_engine_listens_on_loopback_and_exposes_no_port(make_backend, template):
    engine = engine_of(template(make_backend()))
    assert engine["args"][engine["args"].index("--host") + 1] == "127.0.0.1"
    assert "ports" not in engine


def test_vllm_gets_its_command_and_llama_cpp_keeps_its_entry_point(make_backend, template):
    assert engine_of(template(make_backend("VLLM")))["command"] == ["vllm", "serve"]
    assert "command" not in engine_of(template(make_backend("LlamaCpp")))
