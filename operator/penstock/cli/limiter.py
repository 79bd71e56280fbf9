"""`penstock limiter`."""

from __future__ import annotations

import os
import sys

import click


@click.command("limiter")
def command() -> None:
    """Run the limiter of one replica.

    Its settings are environment variables, PENSTOCK_*, which the operator writes into the pod.
    """
    from penstock.limiter import app  # noqa: PLC0415 - help must not need it

    sys.exit(app.run(os.environ))
