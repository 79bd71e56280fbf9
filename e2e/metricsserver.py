"""The real metrics-server, compiled from the Go module that `cluster/go/metrics-server` pins: what autoscalers ask.

    with metricsserver.running(program, api, address=..., folder=...):
        ...

It runs as a process in the network of the cluster's first node and not as a pod, with the administrator's rights: what
is under test is the autoscaler's path to a backend, not how metrics-server is installed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubernetes import client

from e2e.cluster import gobuild
from e2e.cluster.errors import ClusterError
from e2e.cluster.gobuild import Program

PROGRAM = Program("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", usually="2 min")

NAMESPACE = "kube-system"
NAME = "metrics-server"
API_SERVICE = "v1beta1.metrics.k8s.io"
RESOLUTION_SECONDS = 10
"""The shortest that metrics-server takes."""

REQUEST_SECONDS = 5
"""For one kubelet; must be less than the resolution."""

START_SECONDS = 60
STOP_SECONDS = 10
POLL_SECONDS = 0.2


def binary() -> Path:
    """Return the path of metrics-server, compiled on first use.

    Raises:
        ClusterError: Go is missing or too old, or the build failed.
    """
    return gobuild.build(NAME, PROGRAM)


@contextlib.contextmanager
def running(program: Path, api: client.ApiClient, *, address: str, folder: Path) -> Iterator[None]:
    """Run metrics-server and have the API server pass `metrics.k8s.io` on to it; undo both at the end.

    Args:
        program: What `binary` returns.
        api: The administrator's client.
        address: Of the node in whose network this process runs.
        folder: For its certificate and its log.

    Raises:
        ClusterError: It does not start; the message holds what it said last.
    """
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
    log = folder / f"{NAME}.log"
    kubeconfig = os.environ["KUBECONFIG"]
    argv = [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--metric-resolution={RESOLUTION_SECONDS}s",
        f"--kubelet-request-timeout={REQUEST_SECONDS}s",
        "--kubelet-preferred-address-types=InternalIP",
        # Its own certificate and those of the kubelets are of this cluster's making.
        "--kubelet-insecure-tls",
    ]
    with log.open("w") as output, subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            _wait_for(process, address=address, port=port, log=log)
            _register(api, address=address, port=port)
            yield
        finally:
            _unregister(api)
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(process: subprocess.Popen[bytes], *, address: str, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=POLL_SECONDS):
            return
        time.sleep(POLL_SECONDS)
    last = "\n".join(log.read_text().splitlines()[-10:])
    state = "does not listen" if process.poll() is None else f"ended with status {process.returncode}"
    raise ClusterError(f"metrics-server {state}:\n{last}")


def _register(api: client.ApiClient, *, address: str, port: int) -> None:
    core = client.CoreV1Api(api)
    meta = client.V1ObjectMeta(name=NAME)
    ports = [client.V1ServicePort(name="https", port=443, target_port=port)]
    core.create_namespaced_service(NAMESPACE, client.V1Service(metadata=meta, spec=client.V1ServiceSpec(ports=ports)))
    slice_meta = client.V1ObjectMeta(name=NAME, labels={"kubernetes.io/service-name": NAME})
    client.DiscoveryV1Api(api).create_namespaced_endpoint_slice(
        NAMESPACE,
        client.V1EndpointSlice(
            metadata=slice_meta,
            address_type="IPv4",
            endpoints=[client.V1Endpoint(addresses=[address], conditions=client.V1EndpointConditions(ready=True))],
            ports=[client.DiscoveryV1EndpointPort(name="https", port=port, protocol="TCP")],
        ),
    )
    client.ApiregistrationV1Api(api).create_api_service(
        client.V1APIService(
            metadata=client.V1ObjectMeta(name=API_SERVICE),
            spec=client.V1APIServiceSpec(
                group="metrics.k8s.io",
                version="v1beta1",
                group_priority_minimum=100,
                version_priority=100,
                insecure_skip_tls_verify=True,
                service=client.ApiregistrationV1ServiceReference(name=NAME, namespace=NAMESPACE, port=443),
            ),
        )
    )


def _unregister(api: client.ApiClient) -> None:
    removals: tuple[Callable[[], Any], ...] = (
        lambda: client.ApiregistrationV1Api(api).delete_api_service(API_SERVICE),
        lambda: client.DiscoveryV1Api(api).delete_namespaced_endpoint_slice(NAME, NAMESPACE),
        lambda: client.CoreV1Api(api).delete_namespaced_service(NAME, NAMESPACE),
    )
    for remove in removals:
        try:
            remove()
        except client.ApiException as error:
            if error.status != 404:
                raise
