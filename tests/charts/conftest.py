"""The repository's chart and manifest, and the real helm, compiled on first use, to render the one."""

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from e2e import helm
from tests.charts.objects import REPOSITORY, Object


@functools.cache
def rendered(values: str, arguments: tuple[str, ...]) -> list[Object]:
    return [obj for obj in yaml.safe_load_all(helm.template(values=json.loads(values), arguments=arguments)) if obj]


@pytest.fixture
def render() -> Callable[..., list[Object]]:
    """Render the chart with values by their path; what is wrong with them is raised as `helm.HelmFailed`."""

    def run(values: dict[str, Any] | None = None, *arguments: str) -> list[Object]:
        return rendered(json.dumps(values or {}), ("--skip-tests", *arguments))

    return run


@pytest.fixture(scope="session")
def installed() -> list[Object]:
    """The objects of deploy/install.yaml."""
    return list(yaml.safe_load_all((REPOSITORY / "deploy" / "install.yaml").read_text()))
