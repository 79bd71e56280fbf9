"""Certificates: what Kubernetes reads out of them, and that strangers are refused."""

import base64
import json
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import NameOID

from e2e.cluster.pki import CLOCK_SKEW, VALID_DAYS, Authority, KeyPair, signing_key

NOW = datetime(2030, 5, 17, 12, 0, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "pki")


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def handshake(server: KeyPair, *, trusted: Authority) -> None:
    """Shake hands over a socket pair with a server that shows this certificate, trusting that authority."""
    here, there = socket.socketpair()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.certificate, server.key)

    def serve() -> None:
        with there:
            try:
                serving.wrap_socket(there, server_side=True).close()
            except (ssl.SSLError, ConnectionError):
                return  # the client has hung up, which is what the test looks at

    thread = threading.Thread(target=serve)
    thread.start()
    with here:
        try:
            ssl.create_default_context(cafile=str(trusted.certificate)).wrap_socket(
                here, server_hostname="127.0.0.1"
            ).close()
        finally:
            here.close()
            thread.join()


def test_user_and_groups_are_common_name_and_organizations(authority):
    subject = certificate(
        authority.issue("kubelet", common_name="system:node:a", organizations=["system:nodes"])
    ).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["system:node:a"]
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:nodes"]


def test_hosts_become_dns_names_and_addresses(authority):
    issued = certificate(authority.issue("server", common_name="server", hosts=["kubernetes.default", "198.18.0.1"]))
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes.default"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["198.18.0.1"]


def test_certificates_hold_from_an_hour_ago_for_thirty_days(tmp_path):
    issued = certificate(Authority(tmp_path, now=NOW).issue("x", common_name="x"))
    assert issued.not_valid_before_utc == NOW - CLOCK_SKEW
    assert issued.not_valid_after_utc == NOW + timedelta(days=VALID_DAYS)


def test_a_client_that_trusts_the_authority_accepts_its_server(authority):
    handshake(authority.issue("server", common_name="server", hosts=["127.0.0.1"]), trusted=authority)


def test_a_server_of_another_authority_is_refused(authority, tmp_path):
    stranger = Authority(tmp_path / "other").issue("server", common_name="server", hosts=["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(stranger, trusted=authority)


def test_private_files_are_readable_by_the_owner_only(authority, tmp_path):
    pair = authority.issue("admin", common_name="admin")
    config = authority.kubeconfig(tmp_path / "kubeconfig", server="https://h", client=pair)
    for path in (authority.key, pair.key, config, signing_key(tmp_path).key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_kubeconfig_holds_server_and_all_three_pems(authority, tmp_path):
    pair = authority.issue("admin", common_name="admin")
    config = json.loads(
        authority.kubeconfig(tmp_path / "kubeconfig", server="https://127.0.0.1:6443", client=pair).read_text()
    )
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    assert cluster["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == authority.certificate.read_bytes()
    assert base64.b64decode(user["client-certificate-data"]) == pair.certificate.read_bytes()
    assert base64.b64decode(user["client-key-data"]) == pair.key.read_bytes()


def test_the_signing_key_is_a_pair_in_the_form_that_kubernetes_reads(tmp_path):
    pair = signing_key(tmp_path)
    private = load_pem_private_key(pair.key.read_bytes(), password=None)
    assert b"BEGIN EC PRIVATE KEY" in pair.key.read_bytes()
    assert private.public_key() == load_pem_public_key(pair.certificate.read_bytes())
