"""Receives pushes: checks the signature, asks `admission.pushed`, and knows what of the last one is in force.

In this order, so that what a stranger sends costs the least: length, envelope, key, signature, content. A stranger can
make nothing happen but a count. Trusted keys come from the policy file alone, never from a push: else whoever once had
a key could keep it trusted.
"""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Callable, Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from penstock.admission.pushed import Acceptance, Standing
from penstock.api.errors import InvalidPolicy
from penstock.api.policy import Policy
from penstock.api.push import STATUSES, Envelope, MalformedPush, PushAnswer, Pushed, PushResult, key_id

logger = logging.getLogger(__name__)

BOOT_ID_BYTES = 16

_MESSAGES = {
    PushResult.UNKNOWN_KEY: "The policy file does not list this key.",
    PushResult.BAD_SIGNATURE: "The signature does not fit the payload.",
    PushResult.WRONG_BACKEND: "This replica belongs to another backend.",
    PushResult.WRONG_POD: "This is another pod.",
    PushResult.WRONG_BOOT: "This process has another boot id.",
    PushResult.OLD_VERSION: "The version in force is not older.",
}


class Pushes:
    """See the module's docstring.

    Args:
        backend_uid: The own backend's.
        pod_uid: The own pod's, if it is known.
        now: The time by the clock of all decisions.

    Attributes:
        acceptance: What is in force.
        results: What became of pushes, by result.
        on_applied: Called when another push is in force.
        policy_problem: Why the policy of the push in force is not; None when it is, or there is none.
    """

    def __init__(self, *, backend_uid: str, pod_uid: str | None, now: Callable[[], float]) -> None:
        boot_id = secrets.token_hex(BOOT_ID_BYTES)
        self.acceptance = Acceptance(backend_uid=backend_uid, pod_uid=pod_uid, boot_id=boot_id)
        self.results = dict.fromkeys(STATUSES, 0)
        self.on_applied: Callable[[], None] = lambda: None
        self.policy_problem: str | None = None
        self._now = now
        self._keys: dict[str, Ed25519PublicKey] = {}
        self._trusted: tuple[str, ...] = ()
        self._policy: Policy | None = None
        self._policy_text: str | None = None
        self._told: PushResult | None = None

    def trust(self, public_keys: Iterable[str]) -> None:
        """Believe pushes signed by these keys, given in base64, and by no others."""
        trusted = tuple(public_keys)
        if trusted != self._trusted:
            self._trusted = trusted
            self._keys = dict(_read_key(text) for text in trusted)
            logger.info("keys trusted for pushes ids=%s", ",".join(self._keys) or "none")

    def receive(self, body: bytes) -> PushAnswer:
        """Put a push in force, or say why not."""
        message = ""
        try:
            result = self._receive(body)
        except MalformedPush as error:
            result, message = PushResult.MALFORMED, f"This is no push: {error}."
        self.results[result] += 1
        self._tell(result)
        if result is PushResult.APPLIED:
            self.on_applied()
            message = self.policy_problem or ""
        return PushAnswer(
            result=result,
            message=(message or _MESSAGES.get(result, ""))[:300],
            boot_id=self.acceptance.boot_id,
            version=self.acceptance.version,
        )

    @property
    def policy(self) -> Policy | None:
        """The policy that a push has put in force in the file's place; None when there is none."""
        return self._policy if self.acceptance.standing(self._now()) is Standing.FRESH else None

    def state(self) -> dict[str, object] | None:
        """Return what `/state` shows of the push in force; None before the first."""
        acceptance, now = self.acceptance, self._now()
        limits, version = acceptance.limits, acceptance.version
        if limits is None or version is None:
            return None
        decision, rate = limits.decision, acceptance.rate_per_second(now)
        # The push was made when its signal had that age, and has become older since.
        signal_age = None if decision.age_seconds is None else decision.age_seconds + acceptance.age_seconds(now)
        return {
            "standing": acceptance.standing(now),
            "version": list(version),
            "rule": decision.rule,
            "signal": decision.signal,
            "value": decision.value,
            "ageSeconds": None if signal_age is None else round(signal_age, 3),
            "ttlLeftSeconds": round(acceptance.ttl_left_seconds(now), 3),
            "ratePerSecond": None if rate is None else round(rate, 6),
            "share": limits.share,
            "peers": len(acceptance.peers(now)),
            "policy": self.policy is not None,
        }

    def _receive(self, body: bytes) -> PushResult:
        envelope = Envelope.parse(body)
        key = self._keys.get(envelope.key)
        if key is None:
            return PushResult.UNKNOWN_KEY
        try:
            key.verify(envelope.signature, envelope.payload)
        except InvalidSignature:
            return PushResult.BAD_SIGNATURE
        pushed = Pushed.parse(envelope.payload)
        result = self.acceptance.take(pushed, now=self._now())
        if result is PushResult.APPLIED:
            self._read_policy(pushed.limits.policy)
        return result

    def _read_policy(self, text: str | None) -> None:
        """Parse the pushed policy; one that is not valid leaves the file in force, and the push's other limits."""
        if text == self._policy_text:
            return
        self._policy_text = text
        self._policy = self.policy_problem = None
        if text is None:
            return
        try:
            self._policy, _ = Policy.parse(text)
        except InvalidPolicy as error:
            self.policy_problem = f"The pushed policy is not valid, the file's stays in force: {error}"
            logger.error("pushed policy not taken over problem=%r", self.policy_problem)

    def _tell(self, result: PushResult) -> None:
        """Log what is new; the rest is counted, so that nobody can fill the log."""
        if result is not self._told:
            self._told = result
            level = logging.INFO if result is PushResult.APPLIED else logging.WARNING
            logger.log(level, "push result=%s version=%s", result, self.acceptance.version)


def _read_key(text: str) -> tuple[str, Ed25519PublicKey]:
    public = base64.b64decode(text)
    return key_id(public), Ed25519PublicKey.from_public_bytes(public)
