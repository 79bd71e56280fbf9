"""The stand-in against the recording of real vLLM: every request, law, scene and command line."""

import contextlib
import json
import random

import pytest

from e2e.conformance import laws, normal, scenes, suite, targets
from e2e.conformance.case import PROFILES, Case
from e2e.conformance.cases import CASES

RECORDED = suite.load()
# A new one each time: a law holds for every prompt. A failure prints it.
SEED = random.SystemRandom().randrange(2**32)


@pytest.fixture(scope="module")
def servers():
    """Return a function that gives the server of a profile, started on first use."""
    running: dict[str, targets.Target] = {}
    with contextlib.ExitStack() as stack:

        def server(profile: str) -> targets.Target:
            if profile not in running:
                running[profile] = stack.enter_context(targets.serve("fakevllm", PROFILES[profile]))
            return running[profile]

        yield server


def equal(name: str, observed: object) -> None:
    assert normal.differences(RECORDED[name], json.loads(json.dumps(observed))) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_is_that_of_vllm(case: Case, servers):
    equal(case.name, suite.send(servers(case.profile), case))


@pytest.mark.parametrize("name", laws.LAWS)
def test_a_law_holds_for_prompts_nobody_recorded(name, servers):
    laws.LAWS[name](laws.Bench(servers("plain"), SEED))


@pytest.mark.parametrize("scene", scenes.SCENES, ids=lambda scene: scene.name)
def test_a_scene_ends_as_with_vllm(scene):
    with targets.serve("fakevllm", PROFILES[scene.profile]) as target:
        equal(f"scene/{scene.name}", scene.play(target))


@pytest.mark.parametrize("name", scenes.COMMANDS)
def test_a_bad_command_line_is_refused_as_by_vllm(name):
    equal(f"command/{name}", scenes.refused_start("fakevllm", scenes.COMMANDS[name]))


def test_every_case_is_recorded_and_no_recording_is_left_over():
    names = [case.name for case in CASES]
    names += [f"law/{name}" for name in laws.LAWS]
    names += [f"scene/{scene.name}" for scene in scenes.SCENES]
    names += [f"command/{name}" for name in scenes.COMMANDS]
    assert len(names) == len(set(names))
    assert set(names) == set(RECORDED)
