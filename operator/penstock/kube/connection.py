"""Where the API server is and who we are: a kubeconfig when one is named, else the pod's service account.

`kubernetes.aio` reads both and makes the TLS context from it; the HTTP session is aiohttp's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from penstock.kube.errors import ConfigurationError

USER_AGENT = "penstock"
DEFAULT_KUBECONFIG = Path("~/.kube/config")


def kubeconfig_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the kubeconfig to use, or None for the pod's service account.

    `KUBECONFIG` wins, so that an administrator can point a container elsewhere; in a pod nothing else is looked at.
    """
    named = environ.get("KUBECONFIG")
    if named:
        return Path(named)
    if environ.get(SERVICE_HOST_ENV_NAME):
        return None
    return DEFAULT_KUBECONFIG.expanduser()


async def load(kubeconfig: Path | None) -> Configuration:
    """Return the client configuration.

    Args:
        kubeconfig: The file; None means the service account mounted into the pod, whose token is re-read when it is
            rotated.

    Raises:
        ConfigurationError: The file or the service account cannot be used; the text says which and why.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's service account"
        raise ConfigurationError(f"cannot use {where}: {error}") from error
    return configuration


def environment_proxy(host: str) -> str | None:
    """Return the proxy that the environment names for a URL, if it names one.

    aiohttp would look this up itself, for every single request and in a thread.
    """
    url = urlsplit(host)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def session(
    configuration: Configuration,
    *,
    connections: int,
    timeout: aiohttp.ClientTimeout,
    headers: Mapping[str, str] | None = None,
    trace: aiohttp.TraceConfig | None = None,
) -> aiohttp.ClientSession:
    """Return an HTTP session that trusts the API server and shows the client certificate, if there is one.

    Args:
        configuration: What `load` has returned.
        connections: How many at most; 0 for no limit.
        timeout: For requests that name none.
        headers: Sent with every request.
        trace: Told of the requests.
    """
    tls = RESTClientObject(configuration).ssl_context
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=tls),
        headers={"User-Agent": USER_AGENT, **(headers or {})},
        timeout=timeout,
        proxy=configuration.proxy or environment_proxy(configuration.host),
        trace_configs=[trace] if trace else None,
    )
