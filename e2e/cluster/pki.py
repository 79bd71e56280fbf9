"""Certificates and kubeconfigs of one throw-away cluster.

Every cluster has an authority of its own. That is also how a client knows it speaks to the right process: a stranger on
the same port cannot show a certificate of an authority that was made a second ago.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30
CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that writes what it issues into one folder."""

    def __init__(self, folder: Path, *, now: datetime | None = None) -> None:
        """Make the authority's own key and certificate, `ca.crt` and `ca.key`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._now = now or datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"penstock-e2e {folder.name}")])
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(self._identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = self._write("ca", certificate, self._key)
        self.certificate, self.key = pair.certificate, pair.key

    def issue(
        self, file: str, *, common_name: str, organizations: Sequence[str] = (), hosts: Sequence[str] = ()
    ) -> KeyPair:
        """Write `file.crt` and `file.key`, good for a server and for a client.

        Args:
            file: Stem of the two files.
            common_name: To Kubernetes, the user.
            organizations: To Kubernetes, the user's groups.
            hosts: DNS names and IP addresses under which a server is reached.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            self._builder(x509.Name(subject), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier), critical=False
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return self._write(file, builder.sign(self._key, hashes.SHA256()), key)

    def kubeconfig(self, path: Path, *, server: str, client: KeyPair) -> Path:
        """Write a kubeconfig that needs no other file, and return its path.

        Args:
            path: Where to write it.
            server: URL of the API server.
            client: The user's certificate and key.
        """
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "penstock",
                    "cluster": {"server": server, "certificate-authority-data": _base64(self.certificate)},
                }
            ],
            "users": [
                {
                    "name": "penstock",
                    "user": {
                        "client-certificate-data": _base64(client.certificate),
                        "client-key-data": _base64(client.key),
                    },
                }
            ],
            "contexts": [{"name": "penstock", "context": {"cluster": "penstock", "user": "penstock"}}],
            "current-context": "penstock",
        }
        _write_private(path, json.dumps(content, indent=2).encode())
        return path

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - CLOCK_SKEW)
            .not_valid_after(self._now + timedelta(days=VALID_DAYS))
        )

    def _write(self, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
        pair = KeyPair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_private(pair.key, _private_pem(key))
        return pair


def signing_key(folder: Path) -> KeyPair:
    """Write the key pair that signs service account tokens; the public part, `sa.pub`, is no certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair = KeyPair(folder / "sa.pub", folder / "sa.key")
    pair.certificate.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    _write_private(pair.key, _private_pem(key))
    return pair


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # The traditional form, which the service account signer of Kubernetes reads.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
