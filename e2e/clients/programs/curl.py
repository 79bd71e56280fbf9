"""Runs curl for each task, as a shell script would, and says what such a script sees: status, headers, body, exit code.

Run as `python curl.py PATH-OF-CURL`. Like the other programs it reads a task per line and answers with a line.
`--retry` is curl's own; it knows `Retry-After` and no other header about retries.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EVENTS_BEFORE_LEAVING = 2


def command(task: dict[str, Any], folder: Path) -> list[str]:
    """Return curl's command line."""
    words = [
        sys.argv[1],
        "--silent",
        "--show-error",
        "--no-buffer",
        "--noproxy",
        "*",
        "--max-time",
        str(task["seconds"]),
    ]
    words += ["--retry", str(task["retries"])] if task["retries"] else []
    for name, value in task["headers"].items():
        words += ["--header", f"{name}: {value}"]
    words += ["--dump-header", str(folder / "head"), "--data-binary", "@-", task["url"]]
    return words if task["do"] != "whole" else [*words, "--output", str(folder / "body")]


def ask(task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Do one task and say what was seen."""
    with subprocess.Popen(
        command(task, folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as curl:
        assert curl.stdin is not None
        assert curl.stdout is not None
        assert curl.stderr is not None
        curl.stdin.write(task["text"])
        curl.stdin.close()
        body = ""
        for line in curl.stdout:
            body += line
            if task["do"] == "leave" and body.count("\n\n") >= EVENTS_BEFORE_LEAVING:
                curl.terminate()
                break
        told = curl.stderr.read()
    if task["do"] == "whole":
        written = folder / "body"
        body = written.read_text() if written.exists() else ""
    status, headers = last_head((folder / "head").read_text()) if (folder / "head").exists() else (None, {})
    error = f"exit {curl.returncode}" if curl.returncode > 0 else None
    return {"status": status, "headers": headers, "body": body, "error": error, "told": told}


def last_head(text: str) -> tuple[int | None, dict[str, str]]:
    """Return status and headers of the last response that curl has written down."""
    heads = [head for head in text.replace("\r\n", "\n").split("\n\n") if head.strip()]
    if not heads:
        return None, {}
    first, *lines = heads[-1].strip().splitlines()
    fields = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}


def main() -> None:
    """Do tasks until standard input ends."""
    for line in sys.stdin:
        with tempfile.TemporaryDirectory(prefix="penstock-curl-") as folder:
            print(json.dumps(ask(json.loads(line), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
