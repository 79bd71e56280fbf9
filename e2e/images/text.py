"""The part of a failed tool's output that tells a person what went wrong."""

from __future__ import annotations

SHOWN_LINES = 12
# buildah repeats the whole RUN line after the reason; pip offers a new version of itself.
NOISE = ("subprocess exited", "Error: building at STEP", "[notice]")


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = last_lines(text, count=1)
    return lines or "it printed nothing"


def last_lines(text: str, *, count: int = SHOWN_LINES) -> str:
    """Return the last lines that say something, at most `count`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(([line for line in lines if not line.startswith(NOISE)] or lines)[-count:])
