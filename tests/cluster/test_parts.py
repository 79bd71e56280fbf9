"""Command lines and configuration files of the parts: addresses fit together, and each work-around is there."""

import ipaddress
import json
import tomllib
from pathlib import Path

import pytest

from e2e.cluster import network, parts
from e2e.cluster.credentials import Credentials
from e2e.cluster.folders import Folders

PROGRAM = Path("/bin/program")


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path, "penstock-test-123456")


@pytest.fixture
def credentials(folders):
    return Credentials(folders)


def test_the_ranges_do_not_overlap_and_are_for_benchmarks():
    ranges = [
        ipaddress.ip_network(f"{network.node_address(1)}/{network.NODE_PREFIX}", strict=False),
        *(ipaddress.ip_network(network.pod_subnet(number)) for number in (1, 2)),
        ipaddress.ip_network(network.SERVICES),
    ]
    assert all(one.subnet_of(ipaddress.ip_network("198.18.0.0/15")) for one in ranges)
    assert not [(a, b) for a in ranges for b in ranges if a is not b and a.overlaps(b)]
    assert ipaddress.ip_address(network.FIRST_SERVICE) == ranges[-1][1]


@pytest.mark.parametrize("number", [1, 2])
def test_containerd_works_without_the_right_to_lower_oom_scores(folders, number):
    argv = parts.containerd(PROGRAM, folders, number, cni_plugins=Path("/plugins"))
    configuration = tomllib.loads(Path(argv[-1]).read_text())
    cri = configuration["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True
    assert cri["sandbox_image"] == parts.PAUSE_IMAGE
    assert configuration["root"].startswith(str(folders.node(number)))


@pytest.mark.parametrize("number", [1, 2])
def test_pods_get_addresses_of_their_node(folders, number):
    argv = parts.containerd(PROGRAM, folders, number, cni_plugins=Path("/plugins"))
    cni = tomllib.loads(Path(argv[-1]).read_text())["plugins"]["io.containerd.grpc.v1.cri"]["cni"]
    (file,) = Path(cni["conf_dir"]).iterdir()
    pods = json.loads(file.read_text())["plugins"][0]
    assert pods["ipam"]["ranges"] == [[{"subnet": network.pod_subnet(number)}]]


@pytest.mark.parametrize("number", [1, 2])
def test_kubelets_have_a_control_group_and_a_certificate_each(folders, credentials, number):
    argv = parts.kubelet(PROGRAM, folders, number, credentials=credentials)
    configuration = json.loads((folders.node(number) / "kubelet.json").read_text())
    assert configuration["cgroupRoot"] == f"/penstock-test-123456/node-{number}"
    assert configuration["failCgroupV1"] is False
    assert configuration["authentication"]["anonymous"]["enabled"] is False
    assert Path(configuration["tlsCertFile"]).stem == f"node-{number}"
    assert f"--node-ip={network.node_address(number)}" in argv


def test_kube_proxy_leaves_connection_tracking_limits_alone(folders, credentials):
    parts.kube_proxy(PROGRAM, folders, 1, credentials=credentials)
    conntrack = json.loads((folders.node(1) / "kube-proxy.json").read_text())["conntrack"]
    assert set(conntrack.values()) == {0, "0s"}


def test_the_api_server_calls_kubelets_by_address_and_checks_who_answers(folders, credentials):
    argv = parts.api_server(PROGRAM, folders, credentials=credentials)
    assert "--kubelet-preferred-address-types=InternalIP" in argv
    assert f"--kubelet-certificate-authority={credentials.authority.certificate}" in argv


def test_commands_and_pods_ask_the_same_dns(folders, credentials):
    text = parts.resolver(folders).read_text()
    parts.kubelet(PROGRAM, folders, 1, credentials=credentials)
    configuration = json.loads((folders.node(1) / "kubelet.json").read_text())
    assert f"nameserver {configuration['clusterDNS'][0]}\n" in text
    assert "search default.svc.cluster.local" in text
    assert f"bind {configuration['clusterDNS'][0]}" in Path(parts.coredns(PROGRAM, folders)[-1]).read_text()


@pytest.mark.parametrize("user", ["kube-controller-manager", "kube-scheduler", "kube-proxy", "node-1", "node-2"])
def test_every_part_has_a_kubeconfig_for_the_server_on_node_1(credentials, user):
    config = json.loads(credentials.path(user).read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://198.18.0.1:6443"


def test_the_api_server_keeps_an_audit_log_among_the_logs(folders, credentials):
    argv = parts.api_server(PROGRAM, folders, credentials=credentials)
    settings = dict(argument.partition("=")[::2] for argument in argv[1:])
    assert settings["--audit-log-path"] == str(folders.logs / "audit.log")
    assert json.loads(Path(settings["--audit-policy-file"]).read_text())["kind"] == "Policy"


def test_only_the_api_server_may_speak_for_others_to_what_it_aggregates(folders, credentials):
    argv = parts.api_server(PROGRAM, folders, credentials=credentials)
    settings = dict(argument.partition("=")[::2] for argument in argv[1:])
    assert settings["--requestheader-allowed-names"] == "front-proxy-client"
    assert settings["--proxy-client-cert-file"] == str(credentials.front_proxy.certificate)
    assert settings["--requestheader-client-ca-file"] == str(credentials.authority.certificate)
