"""Clients and replicas for the whole session, and the table of what was seen at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tabulate import tabulate

from e2e.clients import environments
from e2e.clients.client import Client, start
from e2e.clients.scenes import SCENES
from e2e.clients.stage import Replicas
from e2e.clients.table import CLIENTS, Outcome

Sight = tuple[str, str, Outcome, list[float]]
SIGHTS = pytest.StashKey[list[Sight]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin to collect what is seen."""
    config.stash[SIGHTS] = []


@pytest.fixture(scope="session", autouse=True)
def _prepared() -> None:
    """Have all clients; one that is missing is an error and never left out."""
    environments.prepare()


@pytest.fixture(scope="session")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Yield the replicas, whose tenants are the clients, once more for each scene with a quota."""
    classes = ("brief", "hourly")
    quotas = [f"{one}-{scene.__name__}-{name}" for one in classes for scene in SCENES for name in CLIENTS]
    with Replicas(tmp_path_factory.mktemp("replicas"), (*CLIENTS, *quotas)) as running:
        yield running


@pytest.fixture(scope="session")
def client_named() -> Iterator[Callable[[str], Client]]:
    """Yield a function that returns a running client program."""
    with ExitStack() as stack:
        running: dict[str, Client] = {}

        def get(name: str) -> Client:
            if name not in running:
                running[name] = stack.enter_context(start(name))
            return running[name]

        yield get


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str, str, Outcome, list[float]], None]:
    """Return a function that keeps what a client has surfaced for the table."""

    def keep(scene: str, name: str, found: Outcome, pauses: list[float]) -> None:
        request.config.stash[SIGHTS].append((scene, name, found, pauses))

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was seen, clients that did the same in one line."""
    groups: dict[tuple[str, Outcome], list[tuple[str, list[float]]]] = {}
    for scene, name, found, pauses in config.stash[SIGHTS]:
        groups.setdefault((scene, found), []).append((name, pauses))
    if not groups:
        return
    order = {scene.__name__: number for number, scene in enumerate(SCENES)}
    rows = [
        (
            scene.replace("_", " "),
            ", ".join(name for name, _ in members),
            _surfaces(found),
            found.tries,
            _waited(members),
        )
        for (scene, found), members in sorted(groups.items(), key=lambda item: order[item[0][0]])
    ]
    terminalreporter.section("what clients surface")
    versions = ", ".join(f"{name} {version}" for name, version in environments.versions().items())
    terminalreporter.line(versions)
    headers = ("scene", "clients", "surfaces", "tries", "pauses measured")
    terminalreporter.line(tabulate(rows, headers=headers, disable_numparse=True))


def _surfaces(found: Outcome) -> str:
    words = (found.raised, found.status, found.code, found.kind, found.finish)
    return " ".join(str(word) for word in words if word not in {None, ""})


def _waited(members: list[tuple[str, list[float]]]) -> str:
    pauses = sorted(pause for _, some in members for pause in some)
    return f"{pauses[0]:.2f}-{pauses[-1]:.2f} s" if pauses else ""
