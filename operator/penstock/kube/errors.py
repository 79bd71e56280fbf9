"""What can go wrong between Penstock and the API server, by what to do about it.

    KubeError
    ├── ConfigurationError     no usable kubeconfig or service account: fix the environment and start again
    ├── NotLeading             another replica may lead by now: end, and let it work
    ├── Unavailable            no connection, no answer in time, or a 5xx (but see Invalid): retry with back-off
    └── Refused                the API server answered with a refusal
        ├── Unauthorized       401: credentials expired or wrong
        ├── Forbidden          403: a missing RBAC rule, a quota or an admission policy
        ├── NotFound           404: the object, its namespace or its kind does not exist
        ├── Conflict           409: it exists already, or it is not the object (uid) we meant
        ├── Invalid            400, 415, 422, or a 500 about the object's types: the object itself is refused; retrying
        │                      unchanged is useless
        └── TooManyRequests    429: wait `retry_after_seconds`

The text of each carries the operation, the object, and the API server's own words.
"""

from __future__ import annotations

import re

from penstock.resources.objects import Object

DEFAULT_RETRY_AFTER_SECONDS = 1.0

LONGEST_RETRY_AFTER_SECONDS = 60.0
"""More than this is not believed: a proxy that asks for a day must not stop the operator for one."""

_SECONDS = re.compile(r"\s*([0-9]+)\s*")

_ILL_TYPED = re.compile(r"failed to create typed patch object |failed to convert new object .*: unable to convert ")
"""How the API server begins its answer when an applied object does not fit its Go type. It calls that a 500."""


class KubeError(Exception):
    """The root of this tree."""


class ConfigurationError(KubeError):
    """Neither a kubeconfig nor a service account leads to an API server."""


class NotLeading(KubeError):  # noqa: N818 - the names say what happened, the root says it is an error
    """This process no longer leads, or cannot know that it does, so nothing was sent."""


class Unavailable(KubeError):  # noqa: N818
    """The API server could not be reached, did not answer in time, or failed by itself."""


class Refused(KubeError):  # noqa: N818
    """The API server understood the request and refused it.

    Attributes:
        status: HTTP status code.
        reason: Kubernetes' machine-readable reason (`AlreadyExists`), possibly empty.
        server_message: The API server's own words.
    """

    advice = ""

    def __init__(self, operation: str, *, status: int, reason: str, server_message: str) -> None:
        self.status = status
        self.reason = reason
        self.server_message = server_message
        advice = f" ({self.advice})" if self.advice else ""
        super().__init__(f"{operation}: {server_message or f'HTTP {status}'}{advice}")


class Unauthorized(Refused):
    """The credentials were not accepted."""

    advice = "the credentials have expired or belong to another cluster: log in again"


class Forbidden(Refused):
    """The operator may not do this, or a quota or an admission policy forbids it."""

    @property
    def missing_rule(self) -> bool:
        """Whether RBAC is the cause, rather than a quota or an admission policy."""
        return " cannot " in self.server_message and "exceeded quota" not in self.server_message


class NotFound(Refused):
    """The object, its namespace or its kind does not exist."""


class Conflict(Refused):
    """The object exists already, or is not the one that was meant."""


class Invalid(Refused):
    """The object is refused as it is written."""


class TooManyRequests(Refused):
    """The API server asks for a pause.

    Attributes:
        retry_after_seconds: How long.
    """

    def __init__(
        self, operation: str, *, status: int, reason: str, server_message: str, retry_after_seconds: float
    ) -> None:
        super().__init__(operation, status=status, reason=reason, server_message=server_message)
        self.retry_after_seconds = retry_after_seconds


_BY_STATUS: dict[int, type[Refused]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    415: Invalid,
    422: Invalid,
}


def from_response(operation: str, *, status: int, body: Object | None, retry_after: str | None) -> KubeError:
    """Return the error that an HTTP answer of 400 or above stands for.

    Args:
        operation: What was tried, for people: `apply Deployment default/smollm2`.
        status: HTTP status code.
        body: The `Status` object of the answer, when there is one.
        retry_after: The `Retry-After` header, in seconds; more than a minute is taken for a minute.
    """
    reason = str((body or {}).get("reason", ""))
    server_message = str((body or {}).get("message", ""))
    if status == 429:
        return TooManyRequests(
            operation,
            status=status,
            reason=reason,
            server_message=server_message,
            retry_after_seconds=_seconds(retry_after),
        )
    if status == 500 and _ILL_TYPED.match(server_message):
        return Invalid(operation, status=status, reason=reason, server_message=server_message)
    if status >= 500:
        return Unavailable(f"{operation}: the API server failed with HTTP {status}: {server_message or 'no message'}")
    return _BY_STATUS.get(status, Refused)(operation, status=status, reason=reason, server_message=server_message)


def _seconds(text: str | None) -> float:
    asked = _SECONDS.fullmatch(text or "")
    return DEFAULT_RETRY_AFTER_SECONDS if asked is None else min(float(asked[1]), LONGEST_RETRY_AFTER_SECONDS)
