"""The kind driver for real: two nodes that tests can use like those of the local driver, and nothing left of them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import ClusterError, cgroups, cleanup, debian, open_cluster, process
from e2e.cluster.kind import daemon, driver, nodeimage
from e2e.images import archive

pytestmark = pytest.mark.cluster

NAME = "test-kind"
IMAGE = "localhost/busybox:kind-test"
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode().strip())"
# Places outside the cluster's folder that a Docker daemon, kind and a node write to when nothing keeps them apart.
PLACES = ("/etc/docker", "/lib/modules", "/run/containerd", "/run/docker", "/run/xtables.lock", "/var/lib/docker")


@pytest.fixture(scope="module")
def busybox(tmp_path_factory):
    """The archive of an image with a shell and a web server."""
    return image_of(tmp_path_factory.mktemp("image"), "/bin/busybox").archive


def image_of(folder, *entrypoint):
    """Return an image of one static program from Debian's packages."""
    packages = debian.unpack(("busybox-static",))
    program = next(path for path in packages.root.rglob("bin/busybox") if path.is_file())
    archive.write_layer(folder / "layer.tar", {"/bin/busybox": program})
    config = archive.Config(entrypoint=entrypoint)
    return archive.write_archive(folder / "busybox.tar", IMAGE, [folder / "layer.tar"], config)


def web():
    """Return a Deployment of one web server per node, which answers with its pod's name, and a Service."""
    labels = {"app": "web"}
    script = "busybox mkdir /www; echo $HOSTNAME >/www/index.html; exec busybox httpd -f -p 8000 -h /www"
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        # A pod of a drained node may go where its twin is.
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": labels},
    }
    container = {
        "name": "web",
        "image": IMAGE,
        "args": ["sh", "-c", script],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
    }
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container], "topologySpreadConstraints": [spread]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment, service]})


def places():
    return {place for place in PLACES if Path(place).exists()}


def namespaces(pid):
    try:
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt", "pid")}
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or none that a cluster could have made
        return set()


def own_namespaces(cluster):
    """Return the namespaces of the cluster's daemon and of its nodes, as long as it runs."""
    marked = process.marked(cleanup.mark(cluster.folders.root))
    pids = [one.pid for one in marked] + [
        int(path.name) for path in Path("/proc").glob("[0-9]*") if in_group(path, cluster)
    ]
    return {one for pid in pids for one in namespaces(pid)} - namespaces(os.getpid())


def in_group(path, cluster):
    try:
        return cluster.folders.group in (path / "cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def left(cluster, spaces):
    """Return a line for everything of a cluster that is still on the machine."""
    mounts = cgroups.mounts()
    tops = [mount.target / cluster.folders.group for mount in cgroups.hierarchies(mounts)]
    return [
        *(f"process {path.name}" for path in Path("/proc").glob("[0-9]*") if namespaces(path.name) & spaces),
        *(f"marked process {one.pid}" for one in process.marked(cleanup.mark(cluster.folders.root))),
        *(f"mount {path}" for path in cleanup.below(cluster.folders.root, mounts)),
        *(f"control group {top}" for top in tops if top.exists()),
        *([str(cluster.folders.root)] if cluster.folders.root.exists() else []),
    ]


@pytest.fixture(scope="module")
def cluster(busybox):
    one, before = open_cluster("kind", name=NAME), places()
    try:
        one.up()
        one.load_image(busybox)
        one.kubectl("apply", "-f", "-", input=web())
        one.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
        yield one
        spaces = own_namespaces(one)
        assert spaces
    finally:
        one.down()
    # After the tests of this module: a plain `down` has left nothing on the machine.
    assert left(one, spaces) == []
    assert places() == before


@pytest.fixture
def nodes(cluster):
    return [node.name for node in cluster.nodes]


def fetch(cluster, url, *, node=None):
    return cluster.run([sys.executable, "-c", FETCH, url], node=node, timeout=60).stdout.strip()


def pods(cluster):
    found = json.loads(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    return {
        pod["metadata"]["name"]: (pod["spec"]["nodeName"], pod["status"]["podIP"])
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_both_nodes_are_ready(cluster, nodes):
    found = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [node["metadata"]["name"] for node in found] == nodes
    for node in found:
        assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()


def test_the_pods_are_spread_and_every_node_reaches_every_pod(cluster, nodes):
    assert {node for node, _ in pods(cluster).values()} == set(nodes)
    for name, (_, address) in pods(cluster).items():
        for node in nodes:
            assert fetch(cluster, f"http://{address}:8000", node=node) == name


@pytest.mark.parametrize("url", ["http://web", "http://web.default.svc", "http://web.default.svc.cluster.local"])
def test_a_service_answers_by_name_from_every_node(cluster, nodes, url):
    for node in nodes:
        assert fetch(cluster, url, node=node) in pods(cluster)


def test_a_service_spreads_requests_over_both_pods(cluster):
    assert {fetch(cluster, "http://web") for _ in range(24)} == set(pods(cluster))


def test_a_pod_reaches_services_by_name_also_when_it_is_itself_behind_them(cluster):
    # nc, not wget: the static program's wget crashes in an image without /etc/nsswitch.conf.
    request = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | busybox nc web.default.svc.cluster.local 80 | busybox tail -n 1"
    script = f"for i in 1 2 3 4 5 6; do {request}; done"
    told = cluster.kubectl("exec", "deployment/web", "--", "busybox", "sh", "-c", script)
    assert len(told.splitlines()) == 6
    assert set(told.splitlines()) <= set(pods(cluster))


def test_a_command_has_the_environment_it_was_given_and_the_clusters_kubeconfig(cluster, tmp_path):
    script = "import os; print(os.getpid(), os.environ['KUBECONFIG'], os.environ['GIVEN'], os.getcwd(), flush=True)"
    environment = {**os.environ, "GIVEN": "yes", "KUBECONFIG": "/other"}
    command = [sys.executable, "-c", script]
    with cluster.popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as running:
        words = running.stdout.read().split()
    assert words == [str(running.pid), str(cluster.kubeconfig), "yes", str(tmp_path)]


def test_kubectl_works_from_inside_the_network_too(cluster):
    done = cluster.run([cluster.kubectl_path, "version", "-o", "json"])
    version = json.loads(done.stdout)
    assert version["clientVersion"]["gitVersion"] == version["serverVersion"]["gitVersion"]


def test_an_image_is_loaded_once(cluster, busybox, capsys):
    cluster.load_image(busybox)
    assert "on every node already" in capsys.readouterr().err


def test_up_of_a_running_cluster_does_nothing(cluster, capsys):
    before = cluster.status()
    assert before["up"]
    cluster.up()
    assert "is up already" in capsys.readouterr().err
    assert cluster.status() == before


def test_a_drained_node_loses_its_pods_and_the_service_goes_on(cluster, nodes):
    cluster.kubectl("drain", nodes[1], "--ignore-daemonsets", "--timeout=60s")
    try:
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        assert {node for node, _ in pods(cluster).values()} == {nodes[0]}
        assert fetch(cluster, "http://web") in pods(cluster)
    finally:
        cluster.kubectl("uncordon", nodes[1])


def test_the_machine_has_no_resolver_and_no_address_of_the_cluster(cluster):
    links = subprocess.run(["ip", "-4", "address"], capture_output=True, text=True, check=True).stdout
    assert not any(node.address in links for node in cluster.nodes)
    resolver = cluster.run(["cat", "/etc/resolv.conf"]).stdout
    assert resolver != Path("/etc/resolv.conf").read_text()


def test_a_failed_start_tells_the_cause_keeps_the_logs_and_leaves_nothing_else(monkeypatch, tmp_path):
    """A node image that is none: its container prints a line and ends before kind sees a node in it."""
    image = image_of(tmp_path, "/bin/busybox", "echo", "I am no node")
    monkeypatch.setattr(nodeimage, "build", lambda: image)
    monkeypatch.setattr(driver, "decide", lambda machine: "this test wants a daemon of its own")
    one, before = open_cluster("kind", name=f"{NAME}-3"), places()
    try:
        with pytest.raises(ClusterError, match="the cluster test-kind-3 does not start") as caught:
            one.up()
        told = str(caught.value)
        assert "ERROR: failed to create cluster: could not find a log line" in told
        assert "The last words of penstock-test-kind-3-worker:\n  I am no node" in told
        assert told.endswith(f"All logs: {one.logs}")
        assert {path.name for path in one.logs.iterdir()} >= {"dockerd.log", "kind", "kind-create.log"}
        assert left(one, set()) == [str(one.folders.root)]
        assert [path.name for path in one.folders.root.iterdir()] == ["logs"]
    finally:
        one.down()
    assert left(one, set()) == []
    assert places() == before


def test_down_removes_what_a_killed_daemon_has_left(busybox):
    """A daemon of our own, killed without warning while it runs: its containers are left to nobody."""
    one, before = open_cluster("kind", name=f"{NAME}-2"), places()
    one.folders.logs.mkdir(parents=True)
    try:
        docker, anchor = daemon.start(one.folders, kind=Path("kind"))
        docker.run("docker", "load", "--input", str(busybox))
        docker.run("docker", "run", "--detach", "--privileged", IMAGE, "sleep", "1000")
        spaces = own_namespaces(one)
        (server,) = (pid for pid in process.marked(cleanup.mark(one.folders.root)) if command(pid.pid) == "dockerd")
        assert server.send(signal.SIGKILL)
        assert anchor.alive
        assert "control group" in " ".join(left(one, spaces))
    finally:
        one.down()
    assert left(one, spaces) == []
    assert places() == before


def command(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()
