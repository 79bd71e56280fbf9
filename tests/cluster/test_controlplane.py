"""The control plane for integration tests, for real: etcd and kube-apiserver on loopback."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.cluster import controlplane, process
from e2e.cluster.api import Api
from e2e.cluster.controlplane import HOST, ControlPlane, control_plane, owner_of
from e2e.cluster.errors import ClusterError
from e2e.cluster.pki import Authority, KeyPair
from e2e.cluster.process import Identity

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plane():
    yield from control_plane()


def api(plane, *, client=None, authority=None):
    port = int(plane.server.rpartition(":")[2])
    return Api(HOST, port, authority=authority or plane.authority, client=client or plane.certificate)


def client_of(kubeconfig, folder):
    """Write the client certificate and key of a kubeconfig as files."""
    user = json.loads(kubeconfig.read_text())["users"][0]["user"]
    pair = KeyPair(folder / "client.crt", folder / "client.key")
    pair.certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
    pair.key.write_bytes(base64.b64decode(user["client-key-data"]))
    return pair


def test_the_administrator_sees_the_namespaces(plane):
    names = {item["metadata"]["name"] for item in api(plane).list("/api/v1/namespaces")}
    assert {"default", "kube-system"} <= names


def test_the_version_is_the_one_that_was_built(plane):
    assert '"gitVersion": "v1.34.4"' in api(plane).get("/version")[1]


def test_another_user_has_only_the_rights_that_rbac_gives(plane, tmp_path):
    kubeconfig = plane.kubeconfig_for("system:serviceaccount:penstock-system:penstock-operator")
    status, text = api(plane, client=client_of(kubeconfig, tmp_path)).get("/api/v1/secrets")
    assert status == 403
    assert 'User \\"system:serviceaccount:penstock-system:penstock-operator\\"' in text


def test_groups_count_too(plane, tmp_path):
    kubeconfig = plane.kubeconfig_for("somebody", groups=["system:masters"])
    assert api(plane, client=client_of(kubeconfig, tmp_path)).get("/api/v1/secrets")[0] == 200


def test_a_client_of_another_control_plane_trusts_neither_server(plane, tmp_path):
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        api(plane, authority=Authority(tmp_path)).get("/readyz")


def test_two_run_side_by_side_and_a_taken_port_is_passed_over(plane, monkeypatch):
    free_ports = controlplane._free_ports
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.bind((HOST, 0))
        taken.listen()
        offers = iter([[taken.getsockname()[1], *free_ports(2)]])
        monkeypatch.setattr(controlplane, "_free_ports", lambda count: next(offers, None) or free_ports(count))
        other = stack.enter_context(ControlPlane())
        assert other.server != plane.server
        assert api(other).unready() is None
        assert api(plane).unready() is None
        folder = other.logs
    assert not folder.exists()


def test_a_killed_owner_leaves_no_process_and_its_folder_goes_with_the_next_start(plane, tmp_path):
    script = (
        "import os, signal\n"
        "from e2e.cluster.controlplane import ControlPlane\n"
        "plane = ControlPlane()\n"
        "plane.start()\n"
        "print(plane.logs, *(part.pid for part in plane._parts), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, *pids = done.stdout.split()
    assert len(pids) == 2
    assert process._wait_gone([who for pid in pids if (who := process.identity(int(pid)))], 10) == []
    assert Path(folder).exists()
    controlplane._new_folder().rmdir()
    assert not Path(folder).exists()
    assert plane.logs.exists(), "the folder of a living owner stays"


def failure(plane):
    """Start a control plane that cannot start, remove what it leaves, and return what it said."""
    try:
        with pytest.raises(ClusterError) as caught:
            plane.start()
    finally:
        plane.stop()
    return str(caught.value)


def test_a_failed_start_says_which_part_and_why():
    told = failure(ControlPlane(extra_arguments=["--no-such-flag"]))
    assert "kube-apiserver ended with status 1" in told
    assert "unknown flag: --no-such-flag" in told


def test_the_logs_of_a_failed_start_stay_until_it_is_stopped():
    plane = ControlPlane(extra_arguments=["--no-such-flag"])
    with pytest.raises(ClusterError):
        plane.start()
    folder = plane.logs
    assert (folder / "kube-apiserver.log").exists()
    plane.stop()
    assert not folder.exists()


def test_assets_that_lack_a_program_are_one_sentence(monkeypatch, tmp_path):
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert "holds no kube-apiserver; correct or unset it" in failure(ControlPlane())


def test_assets_are_used_when_they_are_given(monkeypatch, tmp_path):
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).write_text("#!/bin/sh\necho from the assets; exit 9\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert "from the assets" in failure(ControlPlane())


def test_before_the_start_the_logs_are_asked_for_in_vain():
    with pytest.raises(ClusterError, match="in a `with` statement"):
        _ = ControlPlane().logs


@pytest.mark.parametrize(
    ("name", "owner"),
    [("12-345-6", Identity(12, 345)), ("12-345", None), ("other", None), ("a-b-c", None)],
)
def test_folder_names_tell_their_owner(name, owner):
    assert owner_of(name) == owner


def test_this_process_owns_its_folder(plane):
    assert owner_of(plane.logs.name) == process.identity(os.getpid())
