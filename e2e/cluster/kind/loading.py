"""Images on kind's nodes: `kind load image-archive`, and only where it is necessary.

kind copies an archive to its nodes every time. What a node has already is told by the same label that the local driver
keeps, see `e2e.cluster.imagestore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from e2e.cluster import imagestore
from e2e.cluster.kind.docker import Docker


def load(docker: Docker, archive: Path, *, cluster: str, nodes: Sequence[str]) -> int:
    """Make the images of a docker-archive tar known to every node; return on how many that was necessary.

    Args:
        docker: The daemon that runs the nodes.
        archive: The tar.
        cluster: Name that kind knows the cluster by.
        nodes: Names of its nodes.

    Raises:
        ClusterError: The file is no such tar, or a node does not take it.
    """
    wanted = {reference: one.digest for one in imagestore.read(archive) for reference in one.references}

    def ctr(node: str, *arguments: str) -> str:
        return docker.run("docker", "exec", node, "ctr", "--namespace=k8s.io", "images", *arguments)

    def lacks(node: str) -> bool:
        return not wanted.items() <= imagestore.parse_labels(ctr(node, "list")).items()

    lacking = [node for node in nodes if lacks(node)]
    if lacking:
        where = [f"--name={cluster}", f"--nodes={','.join(lacking)}"]
        docker.run(str(docker.kind), "load", "image-archive", str(archive), *where)
    for node in lacking:
        for reference, digest in wanted.items():
            ctr(node, "label", reference, f"{imagestore.LABEL}={digest}")
    return len(lacking)
