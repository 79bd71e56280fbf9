"""Finds engine arguments and variables that Penstock sets itself, however they are spelled.

Two command lines, two parsers. vLLM uses argparse: `_` and `-` are the same, `--flag=value` is one word, `--no-flag`
negates, `--flag.key value` sets one key, `-n2` is `-n 2`, and **any unambiguous prefix works**, so `--hos` is `--host`.
llama.cpp compares whole words, after turning `_` into `-` in words that start with `--`; it knows no `=` and no
prefixes.
The check looks at every word, values included: a value that looks like an owned flag is refused too, which is rare
and harmless, while a flag that slips through could open the engine past the limiter.
Kubelet replaces `$(NAME)` in a word by the variable's value before either parser sees it, so no reference may stand
where it could become a flag: at the start of a word, or in the name of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.api.errors import Problem
from penstock.api.kubernetes import EnvVar

ARGS_FIELD = "spec.engine.args"
ENV_FIELD = "spec.engine.env"


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Arguments that Penstock sets itself, or that would undo what it relies on.

    Attributes:
        flags: All spellings, with their dashes, in the parser's normal form.
        instead: What to write instead, as the rest of a sentence: "set `spec.engine.contextLength`".
    """

    flags: tuple[str, ...]
    instead: str


def argparse_problems(args: Sequence[str], owned: Iterable[Owned]) -> list[Problem]:
    """Return what is wrong with arguments that an argparse parser (vLLM) will read."""
    instead = _table(owned)
    problems = []
    for index, word in enumerate(args):
        if _may_become_a_flag(word):
            problems.append(_reference_problem(index, word))
            continue
        flag = _argparse_flag(word)
        if flag == "--":
            problems.append(_problem(index, "a bare `--` ends the options; remove it"))
            continue
        match = _argparse_match(flag, instead)
        if match is None:
            continue
        short_for = "" if flag == match else f" (short for `{match}`)"
        problems.append(_problem(index, f"`{word}`{short_for} is Penstock's to set: {instead[match]}"))
    return problems


def exact_problems(args: Sequence[str], owned: Iterable[Owned]) -> list[Problem]:
    """Return what is wrong with arguments that a whole-word parser (llama.cpp) will read."""
    instead = _table(owned)
    problems = []
    for index, word in enumerate(args):
        if _may_become_a_flag(word):
            problems.append(_reference_problem(index, word))
            continue
        flag = word.replace("_", "-") if word.startswith("--") else word
        if flag in instead:
            problems.append(_problem(index, f"`{word}` is Penstock's to set: {instead[flag]}"))
        elif flag.startswith("--") and "=" in flag and flag.partition("=")[0] in instead:
            name = word.partition("=")[0]
            problems.append(_problem(index, f"`{name}` is Penstock's to set: {instead[flag.partition('=')[0]]}"))
    return problems


def environment_problems(
    env: Sequence[EnvVar], *, names: Mapping[str, str], prefixes: Mapping[str, str]
) -> list[Problem]:
    """Return what is wrong with environment variables.

    Args:
        env: The user's own variables.
        names: Variables that are refused, and what to do instead.
        prefixes: Beginnings of variables that are refused, and what to do instead.
    """
    problems = []
    for index, variable in enumerate(env):
        instead = names.get(variable.name) or next(
            (text for prefix, text in prefixes.items() if variable.name.startswith(prefix)), None
        )
        if instead is not None:
            problems.append(Problem(f"{ENV_FIELD}[{index}].name", f"`{variable.name}` is Penstock's to set: {instead}"))
    return problems


def _may_become_a_flag(word: str) -> bool:
    return word.startswith("$(") or (word.startswith("-") and "$(" in word.partition("=")[0])


def _reference_problem(index: int, word: str) -> Problem:
    return _problem(
        index, f"`{word}` could become any flag once the variable's value is put in; write the value itself"
    )


def _argparse_flag(word: str) -> str:
    """Return the flag in a word in normal form, or the empty string for a value."""
    if not word.startswith("-") or word == "-":
        return ""
    flag = word.partition("=")[0].partition(".")[0].rstrip("+")
    if not flag.startswith("--"):
        return flag
    flag = flag.replace("_", "-")
    return "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag


def _argparse_match(flag: str, known: Iterable[str]) -> str | None:
    """Return the known flag that argparse would take this one for.

    The flag itself comes first, then any that it is the beginning of. A flag of one letter may carry its value: `-n2`.
    """
    if len(flag) < len("-n"):
        return None
    candidates = tuple(known)
    return (
        next((one for one in candidates if one == flag), None)
        or next((one for one in candidates if one.startswith(flag)), None)
        or next((one for one in candidates if len(one) == len("-n") and flag.startswith(one)), None)
    )


def _table(owned: Iterable[Owned]) -> dict[str, str]:
    return {flag: entry.instead for entry in owned for flag in entry.flags}


def _problem(index: int, message: str) -> Problem:
    return Problem(f"{ARGS_FIELD}[{index}]", message)
