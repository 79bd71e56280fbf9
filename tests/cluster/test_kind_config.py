"""What kind and its nodes are told."""

import ipaddress
import json
from itertools import combinations

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.kind import config

KUBECONFIG = "clusters:\n- cluster:\n    server: https://penstock-x-control-plane:6443\n  name: kind-penstock-x\n"


def test_a_cluster_has_a_control_plane_and_a_worker():
    document = json.loads(config.cluster_config(None))
    assert (document["kind"], document["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert [node["role"] for node in document["nodes"]] == ["control-plane", "worker"]


def test_a_users_daemon_keeps_the_default_ranges():
    assert json.loads(config.cluster_config(None))["networking"] == {"ipFamily": "ipv4"}


def test_a_daemon_of_our_own_has_ranges_of_our_own():
    networking = json.loads(config.cluster_config(config.OWN_RANGES))["networking"]
    assert (networking["podSubnet"], networking["serviceSubnet"]) == (
        config.OWN_RANGES.pods,
        config.OWN_RANGES.services,
    )


def test_own_ranges_are_apart_and_inside_the_benchmark_range():
    ranges = [ipaddress.ip_network(block) for block in vars(config.OWN_RANGES).values()]
    assert len(ranges) == 3
    assert all(block.subnet_of(ipaddress.ip_network("198.18.0.0/15")) for block in ranges)
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


def test_the_entrypoint_reads_the_ranges_as_shell_variables():
    assert config.node_ranges(config.Ranges(nodes="a", services="b/1", pods="c/2")) == "pods=c/2\nservices=b/1\n"


def test_names_resolve_as_in_a_pod():
    lines = config.resolv_conf("198.18.32.10").splitlines()
    assert lines[0] == "nameserver 198.18.32.10"
    assert lines[1].split() == ["search", "default.svc.cluster.local", "svc.cluster.local", "cluster.local"]


def test_a_kubeconfig_gets_the_address_for_the_name_and_keeps_the_port():
    changed = config.with_server(KUBECONFIG, "198.18.0.2")
    assert changed == KUBECONFIG.replace("penstock-x-control-plane:", "198.18.0.2:")


@pytest.mark.parametrize("text", ["", "clusters: []\n", KUBECONFIG * 2], ids=["empty", "no cluster", "two clusters"])
def test_a_text_without_exactly_one_server_is_refused(text):
    with pytest.raises(ClusterError, match=r"names [02] servers, not one"):
        config.with_server(text, "198.18.0.2")


def test_the_name_says_whose_containers_they_are():
    assert config.cluster_name("e2e") == "penstock-e2e"
