"""What the operator pushes to a replica's limiter: limits that only somebody who sees all replicas can know.

A push is an envelope of three texts: `payload`, the canonical JSON of a `Pushed` in base64; `signature` over the
payload's bytes; and `key`, the id of the key that made it. What is signed is what is read: the receiver checks the
bytes before it parses them, and never renders them again.

A push is for one process: `backend_uid`, `pod_uid` and `boot_id` name it, so what was recorded at one replica means
nothing to another, nor to the same one after a restart. Its version must be above the one in force. Versions compare
as tuples: how often the Lease has changed hands, then a count of the leader's own. So a leader that was replaced
without noticing cannot overwrite what its successor has said. No clocks are compared.

This module makes and reads the bytes; keys and signatures are for its users.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, ValidationError

from penstock.api.base import ApiModel
from penstock.api.errors import PenstockError

LIMITS_PATH = "/limits"
PUSH_LIMIT_BYTES = 1024 * 1024
"""Largest envelope that a limiter reads."""

POLICY_LIMIT_CHARACTERS = 256 * 1024
"""Longest policy that travels in a push; a longer one arrives with the ConfigMap alone."""

KEY_ID_HEX_DIGITS = 16
MAXIMUM_PEERS = 4096
LONGEST_TTL_SECONDS = 3600
HIGHEST_RATE = 1e9
"""A rate that grows from here is still a number."""

_ENVELOPE_KEYS = ("payload", "signature", "key")
_STRUCTURE = (b",", b"[", b"{")
_MOST_STRUCTURE = 64


class MalformedPush(PenstockError):  # noqa: N818 - says what it is
    """The bytes are no push."""


class PushResult(StrEnum):
    """What became of a push: one word, in the answer and as a metric's label."""

    APPLIED = "applied"
    """The limits are in force."""
    MALFORMED = "malformed"
    """The body is no envelope, or what was signed is no push."""
    UNKNOWN_KEY = "unknown_key"
    """The policy file does not list the key."""
    BAD_SIGNATURE = "bad_signature"
    WRONG_BACKEND = "wrong_backend"
    WRONG_POD = "wrong_pod"
    WRONG_BOOT = "wrong_boot"
    """It was meant for a process that has ended since."""
    OLD_VERSION = "old_version"
    """What is in force is not older."""
    NOT_LEADING = "not_leading"
    """It was not sent: this operator may not write any more."""
    UNREACHABLE = "unreachable"
    """There was no answer, or none that a limiter gives."""
    LATE = "late"
    """There was no answer in time, so it may be in force or not."""


STATUSES = {
    PushResult.APPLIED: 200,
    PushResult.MALFORMED: 400,
    PushResult.UNKNOWN_KEY: 403,
    PushResult.BAD_SIGNATURE: 403,
    PushResult.WRONG_BACKEND: 409,
    PushResult.WRONG_POD: 409,
    PushResult.WRONG_BOOT: 409,
    PushResult.OLD_VERSION: 409,
}
"""What a limiter answers, with its HTTP status."""


class Version(NamedTuple):
    """Order of pushes."""

    epoch: Annotated[int, Field(ge=0, lt=2**62)]
    """How often the Lease has changed hands."""

    counter: Annotated[int, Field(ge=0, lt=2**62)]
    """Pushes of that leader so far."""


def _canonical_address(text: str) -> str:
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


Word = Annotated[str, Field(max_length=100)]
Uid = Annotated[str, Field(max_length=100)]
PeerAddress = Annotated[str, Field(max_length=45), AfterValidator(_canonical_address)]
"""An IP address in its shortest spelling; an IPv4 address that is written as IPv6 becomes the former."""


class Decision(ApiModel):
    """Which rule decided, and on what."""

    rule: Word
    """Name of the rule."""

    signal: Word | None = None
    """Name of the value that the rule looked at."""

    value: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """That value."""

    age_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Age of that value when the push was made."""


class PushedLimits(ApiModel):
    """What a replica cannot know by itself."""

    rate_per_second: Annotated[float, Field(gt=0, le=HIGHEST_RATE, allow_inf_nan=False)] | None = None
    """Requests per second that this replica admits; None for no bound."""

    share: Annotated[float, Field(ge=0, le=1)]
    """This replica's part of the quotas that replicas share."""

    peers: Annotated[tuple[PeerAddress, ...], Field(max_length=MAXIMUM_PEERS)] = ()
    """Addresses of the backend's other replicas."""

    policy: Annotated[str, Field(max_length=POLICY_LIMIT_CHARACTERS)] | None = None
    """Text of the policy file as the operator has it; its trusted keys do not count."""

    decision: Decision
    """Why the limits are what they are."""


class Pushed(ApiModel):
    """One push."""

    backend_uid: Uid
    """The LLMBackend's metadata.uid."""

    pod_uid: Uid
    """The pod's metadata.uid."""

    boot_id: Uid
    """The limiter's own, which it makes when it starts."""

    version: Version

    ttl_seconds: Annotated[float, Field(gt=0, le=LONGEST_TTL_SECONDS)]
    """How long it counts without another push, from when it arrives."""

    limits: PushedLimits

    def canonical(self) -> bytes:
        """Return the bytes to sign: the same push always gives the same."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, payload: bytes) -> Pushed:
        """Read what `canonical` of this or a later release has made.

        Raises:
            MalformedPush: it is something else.
        """
        try:
            return cls.model_validate_json(payload, strict=True, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise MalformedPush(f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A push as it travels.

    Attributes:
        payload: What is signed.
        signature: Over the payload's bytes.
        key: Id of the key that made it.
    """

    payload: bytes
    signature: bytes
    key: str

    def render(self) -> bytes:
        """Return the body of the request."""
        texts = (base64.b64encode(self.payload).decode(), base64.b64encode(self.signature).decode(), self.key)
        return json.dumps(dict(zip(_ENVELOPE_KEYS, texts, strict=True))).encode()

    @classmethod
    def parse(cls, body: bytes) -> Envelope:
        """Read the body of a request.

        Raises:
            MalformedPush: it is no envelope.
        """
        if len(body) > PUSH_LIMIT_BYTES:
            raise MalformedPush(f"an envelope has at most {PUSH_LIMIT_BYTES} bytes")
        # Counted first: a body of many small values would take twenty times its size, and long to read.
        if sum(map(body.count, _STRUCTURE)) > _MOST_STRUCTURE:
            raise MalformedPush("an envelope holds a few texts")
        try:
            found = json.loads(body)
            payload, signature, key = (found[name] for name in _ENVELOPE_KEYS)
            return cls(base64.b64decode(payload, validate=True), base64.b64decode(signature, validate=True), str(key))
        except (ValueError, TypeError, KeyError, RecursionError, binascii.Error):
            raise MalformedPush(f"the body must be a JSON object with the texts {', '.join(_ENVELOPE_KEYS)}") from None


class PushAnswer(ApiModel):
    """What a limiter answers to a push."""

    result: PushResult

    message: str = ""
    """What is wrong, for people."""

    boot_id: Uid
    """The limiter's own."""

    version: Version | None = None
    """The version in force; None before the first push."""


def key_id(public_key: bytes) -> str:
    """Return the name by which an envelope refers to a key."""
    return hashlib.sha256(public_key).hexdigest()[:KEY_ID_HEX_DIGITS]
