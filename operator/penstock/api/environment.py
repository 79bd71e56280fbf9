"""Settings that a builder writes into a container as environment variables, and that the container's process reads.

A subclass is the one place that knows its variables' names and forms. Each field's text completes the sentence
"write ..." of an error message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from penstock.api.errors import InvalidSettings


def settings_config(prefix: str) -> ConfigDict:
    """Return the configuration of a model whose field `name` is the variable `<prefix>NAME`."""
    return ConfigDict(
        alias_generator=lambda name: prefix + name.upper(),
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


class EnvironmentSettings(BaseModel):
    """Settings of one process in one container; they never change while it runs."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings from environment variables.

        Raises:
            InvalidSettings: names every variable that is missing or wrong, and what to write.
        """
        fields = {str(field.alias): field for field in cls.model_fields.values()}
        try:
            return cls.model_validate({name: environ[name] for name in fields if name in environ}, by_name=False)
        except ValidationError as error:
            lines = []
            for entry in error.errors(include_url=False):
                name = str(entry["loc"][0])
                state = "is missing" if entry["type"] == "missing" else f"is wrong ({entry['msg']})"
                lines.append(f"{name} {state}: write {fields[name].description}")
            raise InvalidSettings("; ".join(lines)) from None

    def to_env(self) -> dict[str, str]:
        """Return the environment variables, absent ones left out; `from_env` reads them back to an equal object."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {name: str(value) for name, value in values.items()}
