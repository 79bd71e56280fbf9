"""Errors a user or an administrator can act on.

    PenstockError
    ├── InvalidBackend     an LLMBackend that cannot be served as written; lists problems by field
    ├── InvalidSettings    an environment variable of the limiter is missing or wrong
    └── InvalidPolicy      the policy file cannot be used; the last good one stays in force

Every message says which value is wrong and what to write instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an object: the field's path (`spec.engine.args[2]`) and what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class PenstockError(Exception):
    """The root of Penstock's own errors; the text is meant for people."""


class InvalidBackend(PenstockError):  # noqa: N818 - the names say what is wrong, the root says it is an error
    """An LLMBackend that cannot be served as written.

    Attributes:
        problems: What is wrong, one entry per field, never empty.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class InvalidSettings(PenstockError):  # noqa: N818
    """An environment variable of the limiter is missing or wrong."""


class InvalidPolicy(PenstockError):  # noqa: N818
    """The policy file is no JSON object or holds a value out of range."""
