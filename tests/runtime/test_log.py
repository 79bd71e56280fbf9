"""Log lines for people and for machines."""

import json
import logging

import pytest

from penstock.runtime import log
from penstock.runtime.settings import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def restore():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_are_objects_with_the_exception(capsys):
    log.configure(LogLevel.INFO, LogFormat.JSON)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("penstock.x").exception("it %s", "broke")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("error", "penstock.x", "it broke")
    assert "ValueError: boom" in line["exception"]


def test_a_decision_has_fields_of_its_own(capsys):
    log.configure(LogLevel.INFO, LogFormat.JSON)
    fields = {"backend": "team/smol", "reason": "it was missing", "took": 0.012}
    logging.getLogger("penstock.x").info("applied", extra=fields)
    assert json.loads(capsys.readouterr().err).items() >= fields.items()


def test_people_get_one_line(capsys):
    log.configure(LogLevel.WARNING, LogFormat.HUMAN)
    logging.getLogger("penstock.x").info("hidden")
    logging.getLogger("penstock.x").warning("shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING penstock.x: shown")


def test_kopf_s_line_per_event_is_hidden(capsys):
    log.configure(LogLevel.INFO, LogFormat.HUMAN)
    logging.getLogger("kopf.objects").info("Handler 'x' succeeded.")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("level", [LogLevel.INFO, LogLevel.DEBUG], ids=["usually", "at debug"])
def test_a_failed_watch_is_one_line_and_a_traceback_only_at_debug(capsys, level):
    log.configure(level, LogFormat.HUMAN)
    try:
        raise ValueError("404 page not found")
    except ValueError as error:
        logging.getLogger("kopf._core.reactor.orchestration").error("Watcher has failed: %s", error, exc_info=error)
    text = capsys.readouterr().err
    assert "Watcher has failed: 404 page not found" in text
    assert ("Traceback" in text) is (level is LogLevel.DEBUG)
