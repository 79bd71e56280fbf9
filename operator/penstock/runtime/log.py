"""Logging of the operator: one line per event, on standard error, for people or for machines."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from penstock.runtime.settings import LogFormat, LogLevel

HUMAN = "%(asctime)s %(levelname)s %(name)s: %(message)s"

QUIET = {
    # kopf logs every event of every watched object at INFO, and its own start and stop step by step.
    "kopf": logging.WARNING,
    "aiohttp.access": logging.WARNING,
    "asyncio": logging.WARNING,
}

FIELDS = ("backend", "reason", "took")
"""What a line that tells of a decision carries besides its message: about which backend, why, and how many seconds."""

TOLD_ELSEWHERE = ("kopf._core.reactor.orchestration", "kopf._core.reactor.running")
"""Log why a watch or task of kopf has failed; the same error then ends the operator with a sentence."""


def without_traceback(record: logging.LogRecord) -> bool:
    """Keep a record, without its traceback where that says no more than its message."""
    if record.name in TOLD_ELSEWHERE:
        record.exc_info = None
    return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name in FIELDS if (value := getattr(record, name, None)) is not None},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(level: LogLevel, log_format: LogFormat) -> None:
    """Set up the root logger of the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else logging.Formatter(HUMAN))
    if level is not LogLevel.DEBUG:
        handler.addFilter(without_traceback)
    # No format asks for these, and each record would look them up.
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name, quiet_level in QUIET.items():
        logging.getLogger(name).setLevel(quiet_level)
