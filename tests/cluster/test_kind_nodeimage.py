"""The node image: which parts go in, and that its files agree with each other."""

import os
import re
import subprocess

import pytest
import yaml

from e2e.cluster.kind import nodeimage, programs


@pytest.mark.parametrize(
    ("reference", "program"),
    [
        ("registry.k8s.io/kube-apiserver:v1.34.4", "kube-apiserver"),
        ("registry.k8s.io/coredns/coredns:v1.12.1", "coredns"),
        ("registry.k8s.io/etcd:3.6.5-0", "etcd"),
        ("registry.example:5000/pause:3.10.1", "pause"),
    ],
)
def test_an_image_is_made_from_the_program_it_is_named_after(reference, program):
    assert nodeimage.program_of(reference) == program
    assert program in nodeimage.SERVED_PROGRAMS


LDD = """/usr/sbin/xtables-nft-multi:
\tlinux-vdso.so.1 (0x00007ffc)
\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f1)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)
/usr/lib/x86_64-linux-gnu/xtables/libxt_statistic.so:
\tstatically linked
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f3)
\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f4)
\tlibgone.so.1 => not found
"""


def test_every_library_that_ldd_names_is_taken_once():
    assert nodeimage.libraries_of(LDD) == [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/x86_64-linux-gnu/libmnl.so.0",
        "/lib64/ld-linux-x86-64.so.2",
    ]


def test_the_pod_network_runs_the_image_that_is_imported():
    documents = list(yaml.safe_load_all((nodeimage.FILES / "kind/manifests/default-cni.yaml").read_text()))
    (daemons,) = (one for one in documents if one["kind"] == "DaemonSet")
    (container,) = daemons["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (nodeimage.PODNET, "Never")


def test_the_entrypoint_can_be_executed_and_is_good_shell():
    entrypoint = nodeimage.FILES / "usr/local/bin/entrypoint"
    assert nodeimage.NODE_CONFIG.entrypoint[0] == "/usr/local/bin/entrypoint"
    assert os.access(entrypoint, os.X_OK)
    subprocess.run(["bash", "-n", str(entrypoint)], check=True)
    subprocess.run(["sh", "-n", str(nodeimage.IMPORT)], check=True)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_entrypoint_says_the_words_that_kind_waits_for(version):
    text = (nodeimage.FILES / "usr/local/bin/entrypoint").read_text()
    assert f'say "detected cgroup {version}"' in text


def test_the_files_get_version_ranges_and_enabled_units(tmp_path):
    files = nodeimage._files(tmp_path / "files")
    assert (files / "kind/version").read_text() == "v1.34.4\n"
    assert re.findall(r"^(\w+)=198\.18\.", (files / "kind/ranges").read_text(), flags=re.MULTILINE) == [
        "pods",
        "services",
    ]
    wants = files / "etc/systemd/system/multi-user.target.wants"
    assert {link.name for link in wants.iterdir()} == {"containerd.service", "kubelet.service"}
    for link in wants.iterdir():
        assert (files / str(link.readlink()).lstrip("/")).exists()


@pytest.mark.parametrize("name", [*programs.PROGRAMS])
def test_a_program_has_a_pinned_module(name):
    module = programs._MODULES / name
    assert (module / "go.mod").read_text().startswith(f"module penstock.dev/e2e/cluster/kind/{name}\n")
    assert (module / "go.sum").exists()


def test_kubeadm_reports_the_version_of_the_kubelet():
    assert f"gitVersion={nodeimage.VERSION}" in programs.PROGRAMS["kubeadm"].stamp
