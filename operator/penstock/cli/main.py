"""`penstock`: the one command of the one image.

A subcommand's module is imported when the subcommand runs, so `penstock --help` needs neither Kubernetes nor an event
loop, and the limiter never loads the operator.
"""

from __future__ import annotations

import importlib
import sys

try:
    import click
except ModuleNotFoundError:
    sys.exit("penstock: the command line needs click; install it with `pip install 'penstock[cli]'`")

from penstock.cli.version import version

SUBCOMMANDS = {
    "download": "Bring a model into a volume; its settings come from the environment.",
    "limiter": "Run the limiter of one replica; its settings come from the environment.",
    "operator": "Run the operator.",
    "version": "Print the version.",
}
"""Name to the line in `--help`; the command `NAME` is `command` in the module `penstock.cli.NAME`."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names."""
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command.

        Raises:
            ClickException: what it needs is not installed.
        """
        if cmd_name not in SUBCOMMANDS:
            return None
        try:
            command: click.Command = importlib.import_module(f"penstock.cli.{cmd_name}").command
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("penstock"):
                raise
            raise click.ClickException(
                f"`penstock {cmd_name}` needs {error.name}; install it with `pip install 'penstock[{cmd_name}]'`"
            ) from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(SUBCOMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="penstock", message="%(prog)s %(version)s")
def cli() -> None:
    """Serve LLMs on Kubernetes with vLLM or llama.cpp, behind a limiter that keeps them from being overrun."""


def main() -> None:
    """Run the command line; the exit status is 2 for wrong usage or settings."""
    cli(prog_name="penstock")
    sys.exit(0)
