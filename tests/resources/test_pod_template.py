"""The pod template as a whole."""

import pytest

from penstock.api.engine import EngineType
from penstock.resources import deployment
from penstock.resources.facts import UNKNOWN
from penstock.resources.settings import BuildSettings
from tests.resources.pods import engine_of


@pytest.mark.parametrize("engine", ["LlamaCpp", "VLLM"])
def test_the_pod_has_no_token_and_no_service_links(make_backend, template, engine):
    pod = template(make_backend(engine))["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["serviceAccountName"] == "smol"


def test_tools_show_the_engine_first(make_backend, template):
    annotations = template(make_backend())["metadata"]["annotations"]
    assert annotations == {"kubectl.kubernetes.io/default-container": "engine"}


@pytest.mark.parametrize(
    ("engine", "drain", "expected"),
    [
        ("LlamaCpp", {}, 10 + 300 + 5 + 10),
        ("LlamaCpp", {"lameDuckSeconds": 0, "timeoutSeconds": 0}, 0 + 0 + 5 + 10),
        ("VLLM", {"lameDuckSeconds": 5, "timeoutSeconds": 60}, 5 + 60 + 20 + 10),
    ],
    ids=["llama.cpp with defaults", "llama.cpp at once", "vLLM"],
)
def test_the_grace_period_is_the_sum_of_what_leaving_may_take(make_backend, template, engine, drain, expected):
    assert template(make_backend(engine, drain=drain))["spec"]["terminationGracePeriodSeconds"] == expected


def test_only_llama_cpp_shares_the_process_namespace(make_backend, template):
    assert template(make_backend("LlamaCpp"))["spec"]["shareProcessNamespace"] is True
    assert "shareProcessNamespace" not in template(make_backend("VLLM"))["spec"]


@pytest.mark.parametrize(
    ("engine", "image"),
    [
        ({"type": "LlamaCpp"}, "mirror/llama.cpp:server-b10000"),
        ({"type": "LlamaCpp", "image": "own:b9999"}, "own:b9999"),
        ({"type": "VLLM"}, "vllm/vllm-openai:v0.32.0"),
    ],
    ids=["the administrator's", "the backend's own comes first", "the release's where the administrator names none"],
)
def test_the_engine_s_image(make_backend, engine, image):
    settings = BuildSettings(
        limiter_image="penstock:1",
        drain_key=b"k" * 32,
        default_images={EngineType.LLAMA_CPP: "mirror/llama.cpp:server-b10000"},
    )
    assert engine_of(deployment.template(make_backend(engine=engine), settings, UNKNOWN))["image"] == image


def test_flags_follow_the_image_that_will_run(make_backend):
    settings = BuildSettings(
        limiter_image="penstock:1", drain_key=b"k" * 32, default_images={EngineType.VLLM: "mirror/vllm:v0.9.0"}
    )
    backend = make_backend(engine={"type": "VLLM"})
    assert "--disable-log-requests" in engine_of(deployment.template(backend, settings, UNKNOWN))["args"]
