"""What the Dockerfile promises, as far as it can be read from the file."""

import ast
import re

import pytest

from e2e.images import penstock_image as penstock
from e2e.images.repository import REPOSITORY

LINES = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
# The image holds the Kubernetes client without its generated models and calls (see the Dockerfile).
KEPT_CLIENT_MODULES = re.compile(
    r"kubernetes\.aio(\.config(\..*)?|\.client\.(configuration|rest|exceptions|api_client|api_response))"
)


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_the_base_is_an_argument_with_a_public_default():
    assert instructions("ARG") == ["PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm"]
    assert all(line.split()[0] in {"${PYTHON_IMAGE}", "dependencies"} for line in instructions("FROM"))


def test_all_that_is_copied_is_in_the_tag_and_in_the_build_context():
    copied = {name for line in instructions("COPY") if "--from" not in line for name in line.split()[:-1]}
    assert copied <= set(penstock.SOURCES)
    ignore = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == copied


def test_the_container_runs_penstock_as_a_numeric_user():
    assert instructions("USER") == ["65532:65532"]
    assert instructions("ENTRYPOINT") == ['["penstock"]']


def test_pip_reads_machine_settings_from_secrets_only():
    installs = [line for line in instructions("RUN") if "pip install" in line or "install --quiet" in line]
    online = [line for line in installs if "--no-index" not in line]
    assert online
    assert all("--mount=type=secret,id=pip" in line and "--mount=type=secret,id=ca" in line for line in online)
    assert not [line for line in LINES if re.search(r"https?://", line)]


def kubernetes_imports() -> list[tuple[str, str]]:
    found = []
    for path in sorted((REPOSITORY / "operator" / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            found += [
                (str(path.relative_to(REPOSITORY)), name) for name in names if name.partition(".")[0] == "kubernetes"
            ]
    return found


def test_penstock_uses_the_kubernetes_client():
    assert kubernetes_imports()


@pytest.mark.parametrize(("path", "module"), kubernetes_imports())
def test_penstock_imports_no_part_of_the_kubernetes_client_that_the_image_lacks(path, module):
    assert KEPT_CLIENT_MODULES.fullmatch(module), f"{path}: keep {module} in the Dockerfile, or do without it"
