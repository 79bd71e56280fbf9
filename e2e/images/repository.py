"""Where this repository's own sources lie, the root of every path that goes into an image."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
