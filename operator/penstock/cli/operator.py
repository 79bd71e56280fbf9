"""`penstock operator`: its options are the fields of `OperatorSettings`."""

from __future__ import annotations

import sys
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from penstock.runtime.settings import OperatorSettings

ENVIRONMENT_PREFIX = "PENSTOCK_"
EXIT_FAILED = 1
EXIT_SETTINGS = 2


def _option(name: str, field: FieldInfo) -> click.Option:
    many = typing.get_origin(field.annotation) is tuple
    text = str(field.description).split(". ", maxsplit=1)[0].replace("\n", " ").rstrip(".")
    default = None if many or field.is_required() or field.default is None else str(field.default)
    return click.Option(
        [f"--{name.replace('_', '-')}", name],
        envvar=ENVIRONMENT_PREFIX + name.upper(),
        show_envvar=True,
        type=_type_of(field),
        default=None,
        help=f"{text}." + (f"  [default: {default}]" if default is not None else ""),
    )


def _type_of(field: FieldInfo) -> click.ParamType[Any, Any]:
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return click.Choice([member.value for member in annotation])
    if annotation is int:
        return click.INT
    if annotation is float:
        return click.FLOAT
    if Path in typing.get_args(annotation):
        return click.Path(exists=True, dir_okay=False)
    return click.STRING


def _run(**given: object) -> None:
    try:
        settings = OperatorSettings.model_validate(_values(given))
    except ValidationError as error:
        for entry in error.errors(include_url=False):
            name = str(entry["loc"][0])
            problem = "is missing" if entry["type"] == "missing" else f"is wrong: {entry['msg']}"
            click.echo(
                f"penstock operator: --{name.replace('_', '-')} ({ENVIRONMENT_PREFIX}{name.upper()}) {problem}",
                err=True,
            )
        sys.exit(EXIT_SETTINGS)
    sys.exit(_serve(settings))


def _values(given: dict[str, object]) -> dict[str, object]:
    values = {name: value for name, value in given.items() if value not in (None, "")}
    names = values.get("watch_namespaces")
    if names is not None:
        values["watch_namespaces"] = [part.strip() for part in str(names).split(",") if part.strip()]
    return values


def _serve(settings: OperatorSettings) -> int:
    """Run the operator and return the exit status; whatever a user can act on is one sentence, never a traceback."""
    from penstock.kube.election import LeadershipLost  # noqa: PLC0415 - help must not need them
    from penstock.kube.errors import ConfigurationError, KubeError  # noqa: PLC0415
    from penstock.runtime import app, log  # noqa: PLC0415
    from penstock.runtime.supervision import TaskEnded  # noqa: PLC0415

    log.configure(settings.log_level, settings.log_format)
    try:
        app.run(settings)
    except ConfigurationError as error:
        return _say(error, EXIT_SETTINGS)
    except (app.StartFailed, LeadershipLost, TaskEnded, KubeError, OSError) as error:
        return _say(error, EXIT_FAILED)
    return 0


def _say(error: Exception, status: int) -> int:
    click.echo(f"penstock operator: {error}", err=True)
    return status


command = click.Command(
    "operator",
    callback=_run,
    params=[_option(name, field) for name, field in OperatorSettings.model_fields.items()],
    help="Run the operator: turn every LLMBackend into replicas of its engine, each behind a limiter.",
)
