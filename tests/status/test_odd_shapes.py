"""Whatever controllers and kubelets write, a status comes out, it keeps the rules, and the same input changes nothing.

Objects are made from the fields that are read, each with a fitting value, a misfit, or nothing at all.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.backend import LLMBackend
from penstock.api.conditions import Reason
from penstock.api.status import LLMBackendStatus
from penstock.status.assess import Observation, assess
from penstock.status.change import Change, change
from penstock.status.trouble import Trouble

NOW = "2026-11-29T12:00:00Z"

MISFITS = st.one_of(st.none(), st.booleans(), st.integers(-1, 3), st.text(max_size=3), st.just([]), st.just({}))


def field(*values):
    return st.one_of(st.sampled_from(values), MISFITS)


def shape(**fields):
    return st.one_of(st.fixed_dictionaries({}, optional=fields), MISFITS)


def many(entry):
    return st.one_of(st.lists(entry, max_size=3), MISFITS)


CONDITIONS = many(
    shape(
        type=field("Progressing", "ReplicaFailure", "PodScheduled", "Ready", "ContainersReady", "Stalled"),
        status=field("True", "False"),
        reason=field("ProgressDeadlineExceeded", "Unschedulable"),
        message=field("exceeded quota: q, requested: pods=1", "2 Insufficient nvidia.com/gpu."),
        lastTransitionTime=field(NOW),
    )
)
NUMBER = field(0, 1, 2)
MAYBE_METADATA = shape(
    name=field("smol-1", "smol-2"),
    uid=field("u"),
    generation=NUMBER,
    creationTimestamp=field(NOW),
    labels=shape(**{"pod-template-hash": field("a", "b")}),
    annotations=shape(),
    deletionTimestamp=field(NOW),
)
DEPLOYMENTS = st.one_of(
    st.none(),
    shape(
        metadata=MAYBE_METADATA,
        spec=shape(template=shape(spec=shape(volumes=many(shape(image=shape()))))),
        status=shape(
            observedGeneration=NUMBER,
            replicas=NUMBER,
            readyReplicas=NUMBER,
            updatedReplicas=NUMBER,
            conditions=CONDITIONS,
        ),
    ),
)
ENDED = shape(exitCode=field(0, 1), reason=field("OOMKilled"), message=field("error: no", "\n"))
CONTAINERS = many(
    shape(
        name=field("engine", "limiter", "download", "other"),
        image=field("engine:1"),
        ready=field(True, False),
        started=field(True, False),
        state=shape(
            waiting=shape(reason=field("ErrImagePull", "CrashLoopBackOff", "ContainerCreating"), message=field("x")),
            running=shape(),
            terminated=ENDED,
        ),
        lastState=shape(terminated=ENDED),
    )
)
PODS = st.lists(
    shape(
        metadata=MAYBE_METADATA,
        status=shape(
            phase=field("Pending", "Running", "Failed"),
            reason=field("NodeLost", "Evicted"),
            hostIP=field("10.0.0.1", "10.0.0.2"),
            conditions=CONDITIONS,
            initContainerStatuses=CONTAINERS,
            containerStatuses=CONTAINERS,
        ),
    ),
    max_size=3,
)
CLAIMS = st.dictionaries(
    st.sampled_from(["models", "more"]),
    shape(
        metadata=MAYBE_METADATA,
        spec=shape(accessModes=many(field("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))),
        status=shape(phase=field("Pending", "Bound", "Lost")),
    ),
    max_size=2,
)
EVENTS = st.lists(
    shape(reason=field("FailedMount", "FailedCreatePodSandBox"), message=field("x"), lastTimestamp=field(NOW)),
    max_size=2,
)
PREVIOUS = st.fixed_dictionaries({}, optional={"conditions": CONDITIONS, "selector": field("a=b"), "url": field("u")})
TROUBLES = st.one_of(
    st.none(), st.builds(Trouble, reason=st.sampled_from(Reason), message=st.text(max_size=5), stalled=st.booleans())
)
OBSERVATIONS = st.builds(
    Observation,
    generation=st.integers(1, 3),
    previous=PREVIOUS,
    deployment=DEPLOYMENTS,
    pods=PODS,
    trouble=TROUBLES,
    applied=st.booleans(),
    claims=CLAIMS,
    events=EVENTS,
)
SOURCES = [
    {"baked": {"path": "/m.gguf"}},
    {"image": {"reference": "models:1", "path": "/m.gguf"}},
    {"huggingFace": {"repository": "o/m", "file": "m.gguf"}},
]


@pytest.fixture(scope="module")
def backends():
    def make(source, **spec):
        return LLMBackend.parse(
            {
                "apiVersion": "serving.penstock.dev/v1alpha1",
                "kind": "LLMBackend",
                "metadata": {"name": "smol", "namespace": "team", "uid": "u", "generation": 3},
                "spec": {"engine": {"type": "LlamaCpp"}, "model": {"name": "m", "source": source}, **spec},
            }
        )

    switches = ({}, {"suspend": True}, {"paused": True}, {"replicas": 2})
    return [None, *(make(source, **spec) for source in SOURCES for spec in switches)]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), observation=OBSERVATIONS)
def test_any_shape_gives_a_status_that_keeps_the_rules(backends, data, observation):
    backend = data.draw(st.sampled_from(backends))
    status = assess(backend, observation, now=NOW)
    LLMBackendStatus.model_validate(status)
    found = {entry["type"]: entry["status"] for entry in status["conditions"]}
    assert {"Ready", "Available"} <= found.keys()
    extra = found.keys() - {"Ready", "Available"}
    assert {found[name] for name in extra} <= {"True"}
    assert len(extra) == (0 if found["Ready"] == "True" else 1)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), observation=OBSERVATIONS)
def test_a_second_look_at_the_same_changes_nothing(backends, data, observation):
    backend = data.draw(st.sampled_from(backends))
    first = assess(backend, observation, now="2026-11-29T11:00:00Z")
    again = assess(backend, Observation(**{**vars(observation), "previous": first}), now=NOW)
    assert again == first
    assert change(first, again) is Change.NONE
