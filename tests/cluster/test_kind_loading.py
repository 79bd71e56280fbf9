"""Image archives go only to the nodes that lack them."""

import io
import json
import tarfile

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.imagestore import LABEL
from e2e.cluster.kind import loading
from e2e.cluster.kind.docker import Docker

NODES = ("x-control-plane", "x-worker")
HEADER = "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "one.tar"
    text = json.dumps([{"Config": "abc.json", "RepoTags": ["localhost/one:1"], "Layers": []}]).encode()
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return path


class Recorder(Docker):
    """A daemon whose nodes have the given labels and that remembers what else it was asked."""

    def run(self, *argv, seconds=None, log=None):
        if argv[-1] == "list":
            digest = self.environment[argv[2]]
            return HEADER + (f"localhost/one:1 t d 1 MiB linux/amd64 {LABEL}={digest}\n" if digest else "")
        self.processes.append(" ".join(argv))
        return ""


def docker(*digests):
    return Recorder(kind="kind", environment=dict(zip(NODES, digests, strict=True)), enter=list, processes=[])


@pytest.mark.parametrize(
    ("digests", "lacking"),
    [(("abc", "abc"), ()), (("abc", ""), NODES[1:]), (("old", "abc"), NODES[:1]), (("", "old"), NODES)],
    ids=["there", "one node without", "one node with other content", "nowhere"],
)
def test_an_archive_goes_where_tag_and_content_are_not_there(archive, digests, lacking):
    one = docker(*digests)
    assert loading.load(one, archive, cluster="x", nodes=NODES) == len(lacking)
    label = "docker exec {} ctr --namespace=k8s.io images label localhost/one:1 " + f"{LABEL}=abc"
    load = [f"kind load image-archive {archive} --name=x --nodes={','.join(lacking)}"] if lacking else []
    assert one.processes == load + [label.format(node) for node in lacking]


def test_a_file_of_another_kind_reaches_no_node(tmp_path):
    (tmp_path / "x").write_text("no tar")
    one = docker("", "")
    with pytest.raises(ClusterError, match="is not a docker-archive tar"):
        loading.load(one, tmp_path / "x", cluster="x", nodes=NODES)
    assert one.processes == []
