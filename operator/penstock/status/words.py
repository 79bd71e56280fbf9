"""Other programs' words in a message of ours: shortened so that the cause stays, and the same for the same cause.

A message that changes with every retry (a time stamp, a pod's random name, a process number) would be a write of status
with every retry, and tell nobody anything new. So what varies is taken out.
"""

from __future__ import annotations

import re

LONGEST_QUOTE = 400
"""Characters of somebody else's words that go into a message."""

HEAD = 100
"""Characters that are kept of the beginning of a longer text. The rest is its end, where the cause stands: wrapped
errors name the outermost failure first."""

_GAP = " … "

_STAMPS = (
    re.compile(r"^\(\w+[^()]*pid=\d+\)\s*"),
    re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} (?=[A-Z] )"),
    re.compile(r"^[DIWE] +"),
    re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(?=\d)"),
    re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*Z?\]?\s*"),
    re.compile(r"^\d\d-\d\d \d\d:\d\d:\d\d\s+"),
    re.compile(r"^\[[\w./-]+\.py:\d+\]\s*"),
)
"""What log lines begin with, in the order in which it is taken off: vLLM's process, llama.cpp's time and level,
Python's level, time and place."""

_ERROR = re.compile(
    r"error|exception|fail|invalid|unrecognized|unknown|cannot|can't|unable|not found|not exist|out of", re.IGNORECASE
)
_ECHO = re.compile(
    r"see root cause|exiting due to|failed to load model|failed to start|initialization failed|cleaning up|"
    r"^(?:Traceback|During handling|The above exception)",
    re.IGNORECASE,
)
"""Lines that only say that something went wrong before."""


def quote(text: object) -> str:
    """Return a text on one line, its middle left out when it is long."""
    line = " ".join(str(text).split())
    if len(line) <= LONGEST_QUOTE:
        return line
    tail = LONGEST_QUOTE - HEAD - len(_GAP)
    return line[:HEAD].rstrip() + _GAP + line[-tail:].lstrip()


def cause_of(log: str) -> str:
    """Return the line at the end of a log that says why the program ended; empty when the log is.

    That is the last line that tells of an error and is not just its echo, else the last line that tells of an error,
    else the last line.
    """
    lines = [line for line in map(_bare, log.splitlines()) if line]
    errors = [line for line in lines if _ERROR.search(line)]
    causes = [line for line in errors if not _ECHO.search(line)]
    return quote((causes or errors or lines or [""])[-1])


def _bare(line: str) -> str:
    line = line.strip()
    for stamp in _STAMPS:
        line = stamp.sub("", line)
    return line.strip()
