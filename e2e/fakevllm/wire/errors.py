"""vLLM's error bodies, and how pydantic's complaints are worded in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

MAX_REPORTED = 10
MAX_INPUT_CHARACTERS = 200
_BRANCHES = frozenset({"str", "int", "float", "bool", "list", "dict", "none", "nullable", "union"})


class RequestError(Exception):
    """A request is answered with an error object.

    Args:
        message: The text.
        status: HTTP status, also the object's `code`.
        type: The object's `type`.
        param: The offending parameter.
        value: Its value, quoted in the message together with the parameter.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "BadRequestError",  # noqa: A002 the wire's own word
        param: str | None = None,
        value: object = None,
    ) -> None:
        extras = []
        if status == HTTPStatus.BAD_REQUEST and type == "BadRequestError":
            extras = [f"parameter={param}"] if param is not None else []
            extras += [f"value={value}"] if value is not None else []
        super().__init__(f"{message} ({', '.join(extras)})" if extras else message)
        self.status = status
        self.type = type
        self.param = param

    def body(self) -> dict[str, Any]:
        """Return the response body."""
        return {"error": {"message": str(self), "type": self.type, "param": self.param, "code": self.status}}


class OverloadedError(RequestError):
    """A queue limit is reached."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=503, type="Service Unavailable")


class EngineDeadError(RequestError):
    """The engine has died; the server follows soon."""

    def __init__(self) -> None:
        super().__init__(
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            status=500,
            type="InternalServerError",
        )


class BodyError(RequestError):
    """The body is not what the endpoint wants: bad JSON, wrong types, missing fields."""

    def __init__(self, errors: Iterable[str | Mapping[str, Any]]) -> None:
        listed = self.errors = list(errors)
        word = "error" if len(listed) == 1 else "errors"
        lines = [f"{len(listed)} validation {word}:", *(f"  {_complaint(error)}" for error in listed[:MAX_REPORTED])]
        if len(listed) > MAX_REPORTED:
            lines.append(f"  ...and {len(listed) - MAX_REPORTED} more {word}")
        first = listed[0]
        param = None if isinstance(first, str) else _path(first["loc"])
        super().__init__("\n".join(lines), type="Bad Request", param=param)


class DrainingError(RequestError):
    """The engine is being shut down; nothing in the server expects this error, so it comes from its outermost layer."""

    def __init__(self) -> None:
        super().__init__("cannot schedule new futures after shutdown", status=500, type="InternalServerError")


class UnreadableError(RequestError):
    """The body is no text at all; answered by the web framework's own words."""

    def __init__(self) -> None:
        super().__init__("There was an error parsing the body")

    def body(self) -> dict[str, Any]:
        """Return the response body."""
        return {"detail": str(self)}


def _complaint(error: str | Mapping[str, Any]) -> str:
    if isinstance(error, str):
        return error
    shown = {"type": error["type"], "loc": _path(error["loc"]), "msg": error["msg"], "input": _quote(error["input"])}
    if "ctx" in error:
        shown["ctx"] = error["ctx"]
    return str(shown)


def _quote(value: object) -> str:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    text = str(value)
    return text if len(text) <= MAX_INPUT_CHARACTERS else text[:MAX_INPUT_CHARACTERS] + "...[truncated]"


def _path(location: tuple[str | int, ...]) -> str:
    parts = [str(part) for part in location]
    kept = [part for part in parts if part.lower() not in _BRANCHES and not re.search(r"[\[\](){}]", part)]
    return ".".join(kept or parts)


def unknown_model(name: str, served: Iterable[str]) -> RequestError:
    """Return the error for a model that is not served."""
    return RequestError(
        f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}.",
        status=404,
        type="NotFoundError",
        param="model",
    )
