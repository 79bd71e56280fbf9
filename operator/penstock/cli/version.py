"""`penstock version`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata

import click


def version() -> str:
    """Return the installed version; `unknown` when run from a source tree that is not installed."""
    try:
        return metadata("penstock")["Version"]
    except PackageNotFoundError:
        return "unknown"


@click.command("version")
def command() -> None:
    """Print the version."""
    click.echo(version())
