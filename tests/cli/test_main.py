"""The command line as users meet it."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from penstock.cli import operator as operator_command
from penstock.cli.main import SUBCOMMANDS, cli
from penstock.kube.election import LeadershipLost
from penstock.kube.errors import Unavailable
from penstock.runtime import app, log
from penstock.runtime.settings import OperatorSettings


def run(*arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "KUBE"))}
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env=clean | {"PYTHONPATH": "operator"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["download", "limiter", "operator"])
def test_what_a_command_needs_is_named_with_the_extra_that_brings_it(command, monkeypatch):
    def missing(_name):
        raise ModuleNotFoundError("No module named 'pydantic'", name="pydantic")

    monkeypatch.setattr("penstock.cli.main.importlib.import_module", missing)
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: `penstock {command}` needs pydantic; install it with `pip install 'penstock[{command}]'`\n"
    )


def test_without_click_the_command_line_says_what_to_install():
    code = "import sys; sys.modules['click'] = None; import penstock.cli.main"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": "operator"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "penstock: the command line needs click; install it with `pip install 'penstock[cli]'`\n"


def test_help_names_every_command():
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name, text in SUBCOMMANDS.items():
        assert name in result.output
        assert text.split(maxsplit=1)[0] in result.output


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_has_help(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"{name} [OPTIONS]" in result.output


def test_help_loads_neither_kubernetes_nor_an_event_loop():
    """Why `--help` is quick: what it does not import."""
    program = (
        "import sys; from penstock.cli.main import cli; cli(['-h'], standalone_mode=False); print(sorted(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": "operator"},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = result.stdout.splitlines()[-1]
    for heavy in ("kubernetes", "kopf", "aiohttp", "pydantic", "uvloop", "penstock.limiter", "penstock.runtime"):
        assert f"'{heavy}" not in modules


def test_both_ways_to_ask_for_the_version_agree():
    first, second = run("--version"), run("version")
    assert first.stdout.split() == ["penstock", second.stdout.strip()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["operator"], "--image (PENSTOCK_IMAGE) is missing"),
        (["operator", "--image", "x", "--workers", "0"], "--workers (PENSTOCK_WORKERS) is wrong"),
        (
            ["operator", "--image", "x", "--lease-duration-seconds", "5"],
            "--lease-renew-deadline-seconds (PENSTOCK_LEASE_RENEW_DEADLINE_SECONDS) is wrong",
        ),
        (["operator", "--image", "x", "--workers", "many"], "'many' is not a valid integer"),
        (["operator", "--image", "x", "--kubeconfig", "/nowhere"], "'/nowhere' does not exist"),
        (["limiter"], "PENSTOCK_BACKEND_NAME is missing"),
    ],
    ids=[
        "unknown command",
        "no image",
        "out of range",
        "lease times",
        "no number",
        "no kubeconfig",
        "limiter without settings",
    ],
)
def test_wrong_usage_is_a_sentence_and_status_2(arguments, words):
    result = run(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_no_cluster_is_a_sentence_and_status_2(tmp_path):
    result = run("operator", "--image", "x", KUBECONFIG=str(tmp_path / "absent"))
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("penstock operator: cannot use kubeconfig")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "error",
    [
        app.StartFailed("a permission is missing"),
        Unavailable("no answer"),
        LeadershipLost("another leads"),
        OSError("port in use"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_operator_that_cannot_go_on_says_why_and_ends_with_1(monkeypatch, error):
    def fail(_settings):
        raise error

    monkeypatch.setattr(app, "run", fail)
    monkeypatch.setattr(log, "configure", lambda *_: None)
    result = CliRunner().invoke(cli, ["operator", "--image", "x"])
    assert result.exit_code == 1
    assert result.stderr == f"penstock operator: {error}\n"


@pytest.fixture
def captured(monkeypatch):
    """Let the command end where the operator would start, and keep its settings."""
    seen: list[OperatorSettings] = []
    monkeypatch.setattr(operator_command, "_serve", lambda settings: seen.append(settings) or 0)
    return seen


def test_flags_win_over_variables(captured):
    environment = {"PENSTOCK_IMAGE": "a", "PENSTOCK_WORKERS": "2", "PENSTOCK_WATCH_NAMESPACES": "x, y"}
    result = CliRunner().invoke(cli, ["operator", "--workers", "3"], env=environment)
    assert result.exit_code == 0
    (settings,) = captured
    assert (settings.image, settings.workers, settings.watch_namespaces) == ("a", 3, ("x", "y"))


def test_an_empty_variable_counts_as_absent(captured):
    environment = {"PENSTOCK_IMAGE": "a", "PENSTOCK_NAMESPACE": "", "PENSTOCK_WATCH_NAMESPACES": ""}
    assert CliRunner().invoke(cli, ["operator"], env=environment).exit_code == 0
    assert (captured[0].namespace, captured[0].watch_namespaces) == ("penstock-system", ())


def test_every_setting_is_a_flag_and_a_variable():
    options = {option.name: option for option in operator_command.command.params}
    assert options.keys() == OperatorSettings.model_fields.keys()
    for name, option in options.items():
        assert option.opts == [f"--{name.replace('_', '-')}"]
        assert option.envvar == f"PENSTOCK_{name.upper()}"
        assert option.help
