"""`python -m e2e.clients [arguments of pytest]`: real clients against a real limiter, and a table of what they surface.

What the clients need is made first, once: two Python environments and a Go program. Node and curl must be installed.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from e2e import command
from e2e.clients import environments


def main() -> int:
    """Prepare, run, and return pytest's exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything that was started ends in order
    environments.prepare()
    return int(pytest.main([str(Path(__file__).parent), "--durations=5", *sys.argv[1:]]))


if __name__ == "__main__":
    command.run(main)
