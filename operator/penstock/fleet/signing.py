"""The key that proves to a limiter that a push comes from the operator.

Ed25519: a key pair is 32 random bytes, the same bytes always sign the same way, and what a limiter needs to check a
signature is no secret.
"""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penstock.api.push import Envelope, Pushed, key_id

SEED_BYTES = 32


class SigningKey:
    """A key pair.

    Attributes:
        public: The public key in base64, as policies list it.
        id: What envelopes call it.
    """

    def __init__(self, seed: bytes) -> None:
        """Make the pair.

        Args:
            seed: 32 bytes of strong randomness; the secret itself.

        Raises:
            ValueError: they are more or fewer.
        """
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        public = self._private.public_key().public_bytes_raw()
        self.public = base64.b64encode(public).decode()
        self.id = key_id(public)

    @property
    def seed(self) -> bytes:
        """The secret that the pair was made of."""
        return self._private.private_bytes_raw()

    def seal(self, pushed: Pushed) -> Envelope:
        """Sign a push."""
        payload = pushed.canonical()
        return Envelope(payload, self._private.sign(payload), self.id)

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"
