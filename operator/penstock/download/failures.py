"""What went wrong, in one sentence that says what to do, from whatever the library, its client or the volume raise."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from penstock.download.errors import DownloadError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
LONGEST_WAIT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for, as messages name it."""

    endpoint: str
    repository: str
    revision: str
    with_token: bool
    volume: str

    def __str__(self) -> str:
        return f"{self.repository} at revision {self.revision}"


def explain(error: Exception, request: Request) -> DownloadError | None:
    """Return the failure as a sentence; None for an error that nothing but a mistake in Penstock explains."""
    if isinstance(error, DownloadError):
        return error
    if isinstance(error, HfHubHTTPError):
        return _answer(error, request)
    if isinstance(error, HFValidationError):
        rule = "write owner/name, at most 96 characters, without -- and .."
        return DownloadError(f"{request.repository} is no repository: {rule}", permanent=True)
    if isinstance(error, (httpx2.HTTPError, httpx2.InvalidURL)):
        return _connection(error, request)
    if isinstance(error, OSError):
        return _volume(error, request)
    return None


def _answer(error: HfHubHTTPError, request: Request) -> DownloadError:
    status, hub = error.response.status_code, request.endpoint
    if status == 429:
        wait_seconds = _retry_after(error.response)
        asked = f" and asks to wait {wait_seconds:.0f} s" if wait_seconds else ""
        return DownloadError(f"{hub} limits requests (429){asked}", retry_after_seconds=wait_seconds)
    if status >= 500 or status == 408:
        wait_seconds = _retry_after(error.response)
        return DownloadError(f"{hub} answers {status} for {request.repository}", retry_after_seconds=wait_seconds)
    return DownloadError(_refusal(error, request), permanent=True)


def _refusal(error: HfHubHTTPError, request: Request) -> str:
    status, where, hub = error.response.status_code, request.repository, request.endpoint
    text = f"{hub} answers {status} for {where}: is it the address of a Hugging Face hub?"
    if isinstance(error, GatedRepoError):
        holder = (
            "the account of the token" if request.with_token else "an account, and name its token in `tokenSecretRef`"
        )
        text = f"{where} is gated: accept its terms at {hub}/{where} with {holder}"
    elif isinstance(error, RevisionNotFoundError):
        text = f"{where} has no revision {request.revision}"
    elif isinstance(error, DisabledRepoError):
        text = f"{hub} has disabled {where}"
    elif isinstance(error, EntryNotFoundError):
        text = f"{request} has no file {error.response.url.path.rpartition('/')[2]} any more"
    elif isinstance(error, RepositoryNotFoundError) or (status == 401 and not request.with_token):
        needs = "the token may not read it" if request.with_token else "it needs a token: name one in `tokenSecretRef`"
        text = f"{hub} has no repository {where}, or {needs}"
    elif status == 401:
        text = f"{hub} does not know the token (401): write a valid one into its Secret"
    elif status == 403:
        text = f"{hub} does not let {'the token' if request.with_token else 'anybody'} read {where} (403)"
    return text


def _retry_after(response: httpx2.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT_SECONDS) if text.isdigit() else 0.0


def _connection(error: httpx2.HTTPError | httpx2.InvalidURL, request: Request) -> DownloadError:
    hub = request.endpoint
    for cause in _causes(error):
        told = _below_http(cause, hub) if isinstance(cause, OSError) else None
        if told is not None:
            return told
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        return DownloadError(f"{hub} is no address of a hub: {error}", permanent=True)
    if isinstance(error, httpx2.TimeoutException):
        return DownloadError(f"cannot reach {hub}: no answer in time")
    return DownloadError(f"cannot reach {hub}: {error or type(error).__name__}")


def _below_http(cause: OSError, hub: str) -> DownloadError | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return DownloadError(f"the certificate of {hub} is not trusted: {cause.verify_message}", permanent=True)
    if isinstance(cause, ssl.SSLError):
        return DownloadError(f"{hub} does not speak TLS as expected: {cause.reason}", permanent=True)
    if isinstance(cause, socket.gaierror):
        return DownloadError(f"cannot reach {hub}: its name does not resolve ({cause.strerror})")
    if cause.errno:
        return DownloadError(f"cannot reach {hub}: {os.strerror(cause.errno)}")
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _volume(error: OSError, request: Request) -> DownloadError:
    if error.errno in FULL:
        return DownloadError(f"the volume at {request.volume} is full: make it larger than the model", permanent=True)
    if error.errno in REFUSED:
        return DownloadError(
            f"user {os.getuid()} of group {os.getgid()} may not write to the volume at {request.volume} "
            f"({error.strerror}): let the group write to it",
            permanent=True,
        )
    if error.errno is None:  # the library's own check of what it received
        return DownloadError(f"{request.endpoint} ended a download too early")
    return DownloadError(f"the volume at {request.volume} fails: {error.strerror}")
