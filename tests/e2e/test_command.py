"""How the command lines of `e2e` end."""

import subprocess

import pytest

from e2e import command
from e2e.cluster import ClusterError
from e2e.images import ImageBuildError
from e2e.vllm.build import PrepareError

FAILED = subprocess.CalledProcessError(3, ["kubectl", "apply", "-f", "a b"], stderr="no such file\n")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ClusterError("run it as root"), "failed: run it as root"),
        (ImageBuildError("install cmake"), "failed: install cmake"),
        (PrepareError("install python3-venv"), "failed: install python3-venv"),
        (FAILED, "failed with exit status 3: kubectl apply -f 'a b'\nno such file"),
    ],
    ids=["cluster", "image", "real vLLM", "command"],
)
def test_what_a_person_can_act_on_is_a_sentence(raised, said, capsys):
    def main():
        raise raised

    with pytest.raises(SystemExit) as ended:
        command.run(main)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"[penstock] {said}\n"


def test_the_result_is_the_exit_status():
    with pytest.raises(SystemExit) as ended:
        command.run(lambda: 7)
    assert ended.value.code == 7


def test_an_interruption_says_what_is_left(capsys):
    def main():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        command.run(main, when_interrupted="`make demo-down` removes it")
    assert ended.value.code == 130
    assert "make demo-down" in capsys.readouterr().err


def test_a_defect_stays_visible():
    """Only what a person can act on is put into a sentence."""

    def main():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command.run(main)
