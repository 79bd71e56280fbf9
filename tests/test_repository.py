"""Rules about the repository itself that no other test would notice being broken."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import cache
from penstock.api.backend import LLMBackend

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import environment  # noqa: E402 - a script, found through the path set above


def test_operator_is_a_source_root_and_no_package() -> None:
    """An __init__.py there would shadow the standard library's operator module and stop every Python started here."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_nothing_imports_the_source_root_as_a_package() -> None:
    """`operator.penstock` would be a second copy of every module."""
    pattern = re.compile(r"^\s*(import|from)\s+operator\.penstock", re.MULTILINE)
    found = [path for path in ROOT.rglob("*.py") if pattern.search(path.read_text())]
    assert found == []


def test_every_requirement_is_pinned() -> None:
    """constraints.txt names a version for everything that pyproject.toml asks for."""
    pinned = {canonical(line) for line in environment.CONSTRAINTS.read_text().split()}
    assert {canonical(requirement) for requirement in environment.requirements()} - pinned == set()


def canonical(requirement: str) -> str:
    """Return a requirement's project name as indexes spell it."""
    return re.split(r"[~=<>\[]", requirement)[0].strip().lower().replace("_", "-")


def test_the_map_names_only_what_exists() -> None:
    """Every path that ARCHITECTURE.md, CONTRIBUTING.md, README.md or a decision links to or names in code is there."""
    missing = []
    for document in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", *map(str, (ROOT / "docs").rglob("0*.md"))):
        text = (ROOT / document).read_text()
        links = re.findall(r"\]\((?!https?://)([^)#]+)\)", text)
        named = re.findall(r"`((?:operator|e2e|tests|bench|docs|crds|deploy|examples|scripts)/[\w./-]*)`", text)
        wanted = {*links, *named} - {"operator/__init__.py"}  # named because it must not exist
        missing += [f"{document}: {path}" for path in wanted if not (ROOT / path).exists()]
    assert missing == []


def test_the_environment_and_all_builds_share_one_cache(monkeypatch, tmp_path) -> None:
    """environment.py runs before anything is installed, so it states the rule of `e2e/cache.py` once more."""
    for variables in ({}, {"XDG_CACHE_HOME": "~/x"}, {"XDG_CACHE_HOME": "/x", "PENSTOCK_CACHE": str(tmp_path)}):
        monkeypatch.delenv("PENSTOCK_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert environment.cache_root() == cache.cache_root(), variables


def test_commit_hooks_have_no_unknown_settings() -> None:
    """A comma in an unquoted name would make settings of its parts."""
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in local["hooks"]:
        assert set(hook) <= {"id", "name", "entry", "language", "pass_filenames", "types"}


def test_the_processes_import_nothing_that_their_extras_leave_out() -> None:
    """What only tests need may not be in the image, and what the image lacks may not be imported."""
    modules = {
        "huggingface-hub": "huggingface_hub",
        "prometheus-api-client": "prometheus_api_client",
        "prometheus-client": "prometheus_client",
    }
    never_imported = {"hiredis"}  # redis uses it when it is there
    extras = environment.extras()
    declared = {modules.get(canonical(one), canonical(one)) for lines in extras.values() for one in lines}
    used = {name for path in (ROOT / "operator").rglob("*.py") for name in imports(ast.parse(path.read_text()))}
    assert used - sys.stdlib_module_names - {"penstock", "pydantic_core"} == declared - never_imported


def imports(tree: ast.Module) -> set[str]:
    """Return the top-level packages that a module imports."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {
        name.partition(".")[0]
        for name in plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    }


def test_make_help_lists_every_target_that_the_documents_name() -> None:
    """A target in a document that make does not know would be a newcomer's first error."""
    shown = subprocess.check_output(["make", "-s", "help"], cwd=ROOT, text=True)
    listed = set(re.findall(r"^  ([\w-]+)", shown, re.MULTILINE))
    for document in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"):
        text = (ROOT / document).read_text()
        named = set(re.findall(r"(?:`|^|\s)make ([a-z][\w-]+)(?:`|$|\s)", text, re.MULTILINE))
        prose = {"it", "sure", "one"}
        assert named - prose <= listed, document


def examples() -> list[Any]:
    """Return every LLMBackend that a document or example shows, with where it stands."""
    found = []
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*.yaml")),
    ):
        text = path.read_text()
        blocks = (
            [text] if path.suffix == ".yaml" else re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        )
        for number, block in enumerate(blocks, start=1):
            documents = [one for one in yaml.safe_load_all(block) if isinstance(one, dict)]
            backends = [one for one in documents if one.get("kind") == "LLMBackend"]
            found += [pytest.param(one, id=f"{path.name} {number}") for one in backends]
    return found


@pytest.mark.parametrize("example", examples())
def test_every_example_is_a_backend_that_the_api_server_takes(example: dict[str, Any]) -> None:
    """A reader's first act is to copy one; a field that is misspelt would be ignored by the model, so both look."""
    LLMBackend.parse(example)
    (version,) = yaml.safe_load((ROOT / "crds" / "llmbackends.yaml").read_text())["spec"]["versions"]
    assert unknown(example["spec"], version["schema"]["openAPIV3Schema"]["properties"]["spec"]) == []


def unknown(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return the fields that the schema does not know."""
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    return [key for key in value if key not in known] + [
        f"{key}.{deeper}" for key in value if key in known for deeper in unknown(value[key], known[key])
    ]


@pytest.mark.parametrize(
    "package", ["api", "engines", "resources", "status", "reconcile", "kube", "runtime", "limiter", "cli"]
)
def test_every_package_says_why_it_exists(package: str) -> None:
    """The first thing a newcomer reads in a package is its docstring."""
    text = (ROOT / "operator" / "penstock" / package / "__init__.py").read_text()
    assert re.match(r'"""\S.{20,}', text)
