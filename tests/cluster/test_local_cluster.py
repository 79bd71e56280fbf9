"""The local driver for real: two clusters side by side, and that `down` leaves nothing of them."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from e2e.cluster import gobuild, open_cluster

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).parents[2]
IMAGE = "localhost/web:test"
NAMES = ("test-one", "test-two")


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """An image of one static program that serves a folder and fetches URLs."""
    program = gobuild.build("test-web", gobuild.Program(str(Path(__file__).parent / "web"), ".", usually="30 s"))
    layer = tar({"web": program.read_bytes()})
    configuration = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Entrypoint": ["/web"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "test"}],
    }
    text = json.dumps(configuration).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    path = tmp_path_factory.mktemp("image") / "web.tar"
    path.write_bytes(tar({name: text, "layer.tar": layer, "manifest.json": manifest}))
    return path


def tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def web(name: str, folder: Path) -> str:
    """Return a Service and its Deployment: one web server per node, which serves the cluster's name from a hostPath."""
    container = {
        "name": "web",
        "image": IMAGE,
        "args": ["serve", ":8000", "/www", f"this is {name}"],
        "ports": [{"containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "resources": {"limits": {"memory": "32Mi"}},
        "volumeMounts": [{"name": "www", "mountPath": "/www"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "www", "hostPath": {"path": str(folder)}}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment, service]})


FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode().strip())"


def fetch(cluster, url, *, node=None):
    return cluster.run([sys.executable, "-c", FETCH, url], node=node, timeout=60).stdout.strip()


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    """A folder of the machine per cluster."""
    return {name: tmp_path_factory.mktemp(name) for name in NAMES}


@pytest.fixture(scope="module")
def pair(image, volumes, trace):
    """Two clusters with the same addresses, the same Service names and different answers."""
    clusters = {name: open_cluster(name=name) for name in NAMES}
    try:
        for name, cluster in clusters.items():
            cluster.up()
            cluster.load_image(image)
            cluster.kubectl("apply", "-f", "-", input=web(name, volumes[name]))
        for cluster in clusters.values():
            cluster.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
        traces = {name: trace(name) for name in clusters}
        yield clusters
    finally:
        for cluster in clusters.values():
            cluster.down()
    # After the tests of this module: `down` of both has left nothing on the machine.
    assert {name: found.left() for name, found in traces.items()} == {name: [] for name in NAMES}


@pytest.fixture(params=NAMES)
def cluster(pair, request):
    return pair[request.param]


def test_both_nodes_are_ready_and_run_the_version_that_was_built(cluster):
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]
    for node in nodes:
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.34.4"
        assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()


@pytest.mark.parametrize("url", ["http://web.default.svc", "http://web.default.svc.cluster.local", "http://web"])
def test_a_service_answers_by_name_in_its_own_cluster(cluster, url):
    assert fetch(cluster, url) == f"this is {cluster.name}"
    assert fetch(cluster, url, node="node-2") == f"this is {cluster.name}"


def test_the_pods_are_spread_and_every_node_reaches_every_pod(cluster):
    pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
    for pod in pods:
        for node in cluster.nodes:
            assert fetch(cluster, f"http://{pod['status']['podIP']}:8000", node=node.name).startswith("this is")


def test_a_pod_reaches_services_by_name_also_when_it_is_itself_behind_them(cluster):
    url = "http://web.default.svc.cluster.local"
    told = cluster.kubectl("exec", "deployment/web", "--", "/web", "get", "8", url)
    assert told.splitlines() == [f"this is {cluster.name}"] * 8


def test_logs_and_statistics_of_pods_can_be_had(cluster):
    told = cluster.kubectl("logs", "deployment/web")
    assert told == f"serving this is {cluster.name}\n"
    summary = json.loads(cluster.kubectl("get", "--raw", "/api/v1/nodes/node-2/proxy/stats/summary"))
    assert "default" in {pod["podRef"]["namespace"] for pod in summary["pods"]}


def test_a_host_path_volume_is_the_machines_own_folder(cluster, volumes):
    assert (volumes[cluster.name] / "index.html").read_text() == f"this is {cluster.name}\n"


def test_an_image_is_loaded_once(cluster, image, capsys):
    cluster.load_image(image)
    assert "on every node already" in capsys.readouterr().err


def test_up_of_a_running_cluster_does_nothing(cluster, capsys):
    before = cluster.status()
    cluster.up()
    assert "is up already" in capsys.readouterr().err
    assert cluster.status() == before


def test_status_lists_every_part_as_running(cluster):
    status = cluster.status()
    assert status["up"]
    assert len(status["parts"]) == 11
    assert all(part["alive"] and Path(part["log"]).exists() for part in status["parts"])


def test_a_command_has_the_pid_its_parent_knows_and_the_environment_it_was_given(cluster, tmp_path):
    script = "import os; print(os.getpid(), os.environ['KUBECONFIG'], os.environ['GIVEN'], os.getcwd(), flush=True)"
    environment = {**os.environ, "GIVEN": "yes", "KUBECONFIG": "/other", "HTTP_PROXY": "http://proxy"}
    with cluster.popen(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        words = process.stdout.read().split()
    assert words == [str(process.pid), str(cluster.kubeconfig), "yes", str(tmp_path)]


def test_a_command_that_fails_or_hangs_is_an_error(cluster):
    with pytest.raises(subprocess.CalledProcessError):
        cluster.run(["false"])
    assert cluster.run(["false"], check=False).returncode == 1
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sleep", "60"], timeout=0.5)
    assert cluster.run(["cat"], input="given").stdout == "given"


def test_no_link_leads_out_of_the_cluster(cluster):
    routes = cluster.run(["ip", "-json", "route"]).stdout
    assert {route["dst"] for route in json.loads(routes)}.isdisjoint({"default"})
    addresses = {link["ifname"] for link in json.loads(cluster.run(["ip", "-json", "link"]).stdout)}
    assert "eth0" not in addresses
    assert "node0" in addresses


def test_the_machine_has_no_device_and_no_resolver_of_the_cluster(cluster):
    links = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout)
    assert "node0" not in {link["ifname"] for link in links}
    assert "198.18" not in Path("/etc/resolv.conf").read_text()
    assert "198.18.0.1" in cluster.run(["cat", "/etc/resolv.conf"]).stdout
