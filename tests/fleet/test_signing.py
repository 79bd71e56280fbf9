"""What is signed can be checked with the public half, and only as it was."""

import base64

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from penstock.api.policy import Policy
from penstock.api.push import Decision, Pushed, PushedLimits, Version, key_id
from penstock.fleet.signing import SigningKey

PUSHED = Pushed(
    backend_uid="b",
    pod_uid="p",
    boot_id="x",
    version=Version(1, 2),
    ttl_seconds=60,
    limits=PushedLimits(share=1, decision=Decision(rule="r")),
)


@pytest.fixture
def key():
    return SigningKey(bytes(range(32)))


def test_a_signature_is_of_the_payload(key):
    envelope = key.seal(PUSHED)
    public = base64.b64decode(key.public)
    Ed25519PublicKey.from_public_bytes(public).verify(envelope.signature, envelope.payload)
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(public).verify(envelope.signature, envelope.payload + b" ")
    assert envelope.payload == PUSHED.canonical()
    assert envelope.key == key.id == key_id(public)


def test_its_public_half_is_what_a_policy_takes(key):
    text = Policy(trusted_keys=(key.public,)).render()
    assert Policy.parse(text)[0].trusted_keys == (key.public,)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_seed_has_32_bytes(length):
    with pytest.raises(ValueError, match="32 bytes"):
        SigningKey(b"x" * length)
