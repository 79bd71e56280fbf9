"""A hub with two small repositories, and ways to run a download: in this process, and as a process of its own."""

import datetime as dt
import ipaddress
import os
import random
import subprocess
import sys
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from e2e.hub import Hub, Repository
from penstock.download import app

# Larger than two of the pieces (10 MiB) in which the library hands bytes on.
GGUF = random.Random(1).randbytes(25_000_000)
MODEL = {
    "README.md": b"# A model\n",
    "config.json": b'{"model_type": "llama"}\n',
    "tokenizer.json": b"{}\n",
    "added_tokens.txt": b"",
    "model.safetensors": random.Random(2).randbytes(200_000),
    "pytorch_model.bin": random.Random(3).randbytes(200_000),
}
FILES = "acme/tiny-gguf"
SNAPSHOT = "acme/tiny"
PREFIX = "PENSTOCK_DOWNLOAD_"
TIMEOUT_SECONDS = 60


@pytest.fixture
def hub():
    repositories = [
        Repository(FILES, {"tiny.gguf": GGUF, "other.gguf": b"GGUF"}),
        Repository(SNAPSHOT, MODEL),
        Repository("acme/private", {"tiny.gguf": GGUF}, tokens=("hf_friend",)),
        Repository("acme/gated", {"tiny.gguf": GGUF}, tokens=("hf_friend",), gated=True),
    ]
    with Hub(repositories, tokens=["hf_stranger"]) as running:
        yield running


@pytest.fixture
def volume(tmp_path):
    path = tmp_path / "volume"
    path.mkdir()
    return path


class Download:
    """One download of one request, run as often as a test likes."""

    def __init__(self, hub, volume, **settings):
        given = {
            "REPOSITORY": FILES,
            "FILE": "tiny.gguf",
            "ENDPOINT": hub.url,
            "VOLUME": str(volume),
            "FOLDER": "model",
            **settings,
        }
        self.environment = {PREFIX + name: value for name, value in given.items() if value is not None}
        self.published = volume / "model"
        self.staging = volume / ".penstock" / "model.partial"
        self.lines = []
        self.pauses = []

    def run(self):
        self.lines.clear()
        return app.run(self.environment, say=self.lines.append, sleep=self.pauses.append)

    @property
    def last_line(self):
        return self.lines[-1]

    def start(self, *prefix, program=("-m", "penstock", "download")):
        return subprocess.Popen(
            [*prefix, sys.executable, *program],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(["operator", "."])} | self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_it_runs(self, count=0):
        """Wait until the file is being written and holds so many bytes."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        path = self.staging / "tiny.gguf.incomplete"
        while not (path.exists() and path.stat().st_size >= count):
            assert time.monotonic() < deadline, "the download does not begin"
            time.sleep(0.01)


@pytest.fixture
def download(hub, volume):
    def make(**settings):
        return Download(hub, volume, **settings)

    return make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Return a file with a key and a certificate for 127.0.0.1 that nobody has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path = tmp_path_factory.mktemp("tls") / "hub.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + signed.public_bytes(pem))
    return path
