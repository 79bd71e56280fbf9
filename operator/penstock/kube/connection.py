"""Where the API server is and who we are: a kubeconfig when one is named, else the pod's service account."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from penstock.kube.errors import ConfigurationError

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
