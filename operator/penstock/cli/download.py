"""`penstock download`."""

from __future__ import annotations

import os
import sys

import click


@click.command("download")
def command() -> None:
    """Bring a model from a hub into a volume, for the engine of the same pod.

    Its settings are environment variables, PENSTOCK_DOWNLOAD_*, which the operator writes into the pod. The exit status
    is 1 when the same may work later and 2 when it needs a change.
    """
    from penstock.download import app  # noqa: PLC0415 - help must not need it

    sys.exit(app.main(os.environ))
