"""Each trouble of a container has its reason and a message a user can act on, the same while the trouble lasts."""

import pytest

from penstock.status.containers import trouble_of

IMAGE = "registry.example/team/engine:no-such-tag"
PULL = (
    f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
    "unexpected status from HEAD request to https://registry.example/v2/team/engine/manifests/no-such-tag: "
    "403 Forbidden"
)
ARGPARSE = "usage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --no-such"


def waiting(reason, message=""):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def crashed(**terminated):
    return waiting("CrashLoopBackOff", "back-off 40s restarting failed container") | {
        "lastState": {"terminated": terminated},
        "ready": False,
    }


def told(name, status, image="engine:1"):
    return trouble_of("smol-1", {"name": name, "image": image, **status})


TROUBLES = [
    pytest.param(
        "engine",
        waiting("ErrImagePull", "not found"),
        "ImagePullFailed",
        "image engine:1 of the engine cannot be pulled: not found",
        id="image not found",
    ),
    pytest.param(
        "limiter",
        waiting("ImagePullBackOff", 'Back-off pulling image "engine:1"'),
        "ImagePullFailed",
        "image engine:1 of the limiter cannot be pulled",
        id="an old kubelet's words between two tries",
    ),
    pytest.param(
        "istio-proxy",
        waiting("InvalidImageName", "couldn't parse image name"),
        "ImagePullFailed",
        "image engine:1 of the istio-proxy cannot be pulled: couldn't parse image name",
        id="image of an injected container",
    ),
    pytest.param(
        "engine",
        waiting("CreateContainerConfigError", 'secret "token" not found'),
        "PodsRefused",
        'the engine of pod smol-1 cannot be made: secret "token" not found',
        id="variable from a missing Secret",
    ),
    pytest.param(
        "engine",
        crashed(exitCode=1, message="loading\n\n  error: no such file  \n"),
        "EngineCrashing",
        "the engine of pod smol-1 ended with exit code 1: error: no such file",
        id="crash with last words",
    ),
    pytest.param(
        "engine",
        crashed(exitCode=2, message=ARGPARSE),
        "EngineCrashing",
        "the engine of pod smol-1 ended with exit code 2: vllm serve: error: unrecognized arguments: --no-such "
        "(see `spec.engine.args`)",
        id="argument that vLLM does not know",
    ),
    pytest.param(
        "engine",
        crashed(exitCode=1, message="error: invalid argument: --no-such-flag\n"),
        "EngineCrashing",
        "the engine of pod smol-1 ended with exit code 1: error: invalid argument: --no-such-flag "
        "(see `spec.engine.args`)",
        id="argument that llama.cpp does not know",
    ),
    pytest.param(
        "engine",
        crashed(exitCode=137, reason="OOMKilled", message="loading"),
        "EngineCrashing",
        "the engine of pod smol-1 was killed because it used more memory than its limit; "
        "raise `spec.resources.limits.memory`",
        id="engine out of memory",
    ),
    pytest.param(
        "limiter",
        crashed(exitCode=137, reason="OOMKilled"),
        "LimiterCrashing",
        "the limiter of pod smol-1 was killed because it used more memory than its limit; "
        "raise `spec.limiter.resources.limits.memory`",
        id="limiter out of memory",
    ),
    pytest.param(
        "limiter",
        crashed(exitCode=137, reason="Error", message="engine gone"),
        "LimiterCrashing",
        "the limiter of pod smol-1 was killed (exit code 137), as kubelet does after failed probes: engine gone",
        id="killed from outside",
    ),
    pytest.param(
        "engine",
        {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}}, "ready": False},
        "EngineCrashing",
        "the engine of pod smol-1 ended with exit code 3",
        id="between two crashes",
    ),
    pytest.param(
        "engine",
        {"state": {"terminated": {"exitCode": 0}}, "ready": False},
        "EngineCrashing",
        "the engine of pod smol-1 ended with exit code 0",
        id="an engine that ends with 0 has not done its work",
    ),
    pytest.param(
        "engine",
        waiting("RunContainerError", "exec: no such file"),
        "EngineCrashing",
        "the engine of pod smol-1 cannot start: exec: no such file",
        id="no such program",
    ),
    pytest.param(
        "download",
        crashed(exitCode=1, message="connecting\nthe hub answers 401: the token is wrong, error\n"),
        "DownloadFailed",
        "the download of pod smol-1 ended with exit code 1: the hub answers 401: the token is wrong, error",
        id="failed download",
    ),
]


@pytest.mark.parametrize(("name", "status", "reason", "message"), TROUBLES)
def test_trouble_has_a_reason_and_says_what_is_wrong(name, status, reason, message):
    trouble = told(name, status)
    assert (trouble.reason, trouble.message) == (reason, message)


def test_a_pull_that_is_tried_again_and_again_says_the_same_all_the_time():
    failed = told("engine", waiting("ErrImagePull", PULL), IMAGE)
    held = told("engine", waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {PULL}'), IMAGE)
    assert held == failed
    assert failed.message.endswith("no-such-tag: 403 Forbidden")


def test_the_end_of_a_long_message_is_kept_for_there_stands_the_cause():
    trouble = told("engine", waiting("ErrImagePull", PULL.replace("team", "team/" + "deep/" * 60)))
    assert trouble.message.endswith("403 Forbidden")
    assert "failed to pull and unpack image" in trouble.message


@pytest.mark.parametrize("container", ["istio-proxy", "linkerd-init"])
def test_a_crash_of_an_injected_container_is_not_ours_to_explain(container):
    assert told(container, crashed(exitCode=1)) is None
