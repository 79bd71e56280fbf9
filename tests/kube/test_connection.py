"""Which kubeconfig is used, and what is said when none can be."""

from pathlib import Path

import pytest

from penstock.kube import connection
from penstock.kube.errors import ConfigurationError


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"KUBECONFIG": "/a/b"}, Path("/a/b")),
        ({"KUBECONFIG": "/a/b", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Path("/a/b")),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
        ({}, Path.home() / ".kube" / "config"),
    ],
    ids=["named", "named in a pod", "in a pod", "at home"],
)
def test_which_kubeconfig(environment, expected):
    assert connection.kubeconfig_path(environment) == expected


async def test_a_kubeconfig_gives_server_and_token(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""
    )
    configuration = await connection.load(path)
    assert configuration.host == "https://127.0.0.1:1"
    assert await configuration.get_api_key_with_prefix("BearerToken") == "Bearer t"


async def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot use kubeconfig .*/absent"):
        await connection.load(tmp_path / "absent")


async def test_outside_of_a_pod_there_is_no_service_account():
    with pytest.raises(ConfigurationError, match="the pod's service account"):
        await connection.load(None)
