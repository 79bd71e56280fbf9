"""Who is measured: no proxy at all, the limiter, and the proxies that it stands beside.

A contender is a name and a function from a place (ports and a folder of its own) to a command. Rivals are configured as
their users would for streaming, in `rivals/`, so that none loses by its defaults.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from string import Template

from bench.relay import aiohttp_proxy, binaries
from penstock.api.admission import AdmissionPolicy
from penstock.api.limiter import LogLevel
from penstock.api.policy import Policy
from penstock.api.ratelimits import QuotaAlgorithm, QuotaScope, QuotaUnit, RateLimit
from penstock.api.tenants import IdentifyBy, TenantClass, TenantsPolicy

RIVALS_FOLDER = Path(__file__).parent / "rivals"
SOURCE_ROOT = Path(__file__).resolve().parents[2] / "operator"
SERVED_NAME = "bench"
API_KEY = "sk-bench"  # what the load sends
TENANT = "bench"
BOUNDLESS = 10**9
LIMITER_CONCURRENCY = 4096  # above every load here: this bench is about relaying, not about refusing
LIMITER_DRAIN_SECONDS = 1


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a contender runs."""

    folder: Path
    port: int
    admin_port: int
    backend_port: int


@dataclass(frozen=True)
class Command:
    """What starts a contender."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A proxy under test; without a command the load goes straight to the backend."""

    name: str
    command: Callable[[Place], Command] | None
    prepare: Callable[[], str] = lambda: ""
    """Build or fetch what it needs and return its version."""
    metrics_path: str | None = None
    """What is scraped from its admin port once a second; None when it has no metrics."""


def _policy() -> Policy:
    """Return a policy with everything on that costs something for a request: tenants by key, three quotas (two of them
    about tokens, so usage is asked for and taken out again), classes, queue, retry budget.

    The quotas are too large to refuse anything.
    """
    return Policy(
        log_level=LogLevel.WARNING,
        admission=AdmissionPolicy(
            rate_limits=(
                RateLimit(name="requests", per=QuotaScope.TENANT, limit=BOUNDLESS),
                RateLimit(
                    name="tokens", unit=QuotaUnit.TOKENS, algorithm=QuotaAlgorithm.SLIDING_WINDOW, limit=BOUNDLESS
                ),
                RateLimit(
                    name="prompts",
                    per=QuotaScope.ADDRESS,
                    unit=QuotaUnit.PROMPT_TOKENS,
                    algorithm=QuotaAlgorithm.FIXED_WINDOW,
                    limit=BOUNDLESS,
                ),
            )
        ),
        tenants=TenantsPolicy(
            identify_by=IdentifyBy.API_KEY,
            classes=(TenantClass(name="paying", tenants=(TENANT,), weight=2, priority_class="interactive"),),
        ),
    )


def _limiter(place: Place) -> Command:
    policy = place.folder / "policy.json"
    policy.write_text(_policy().render())
    tenants = place.folder / "tenants"
    tenants.mkdir()
    (tenants / TENANT).write_text(f"{API_KEY}\n")
    settings = {
        "BACKEND_NAME": "bench",
        "BACKEND_NAMESPACE": "default",
        "BACKEND_UID": "00000000-0000-4000-8000-000000000000",
        "ENGINE_TYPE": "VLLM",
        "ENGINE_PORT": str(place.backend_port),
        "API_PORT": str(place.port),
        "ADMIN_PORT": str(place.admin_port),
        "SERVED_NAMES": SERVED_NAME,
        "MAX_CONCURRENCY": str(LIMITER_CONCURRENCY),
        "LAME_DUCK_SECONDS": "0",
        "DRAIN_TIMEOUT_SECONDS": str(LIMITER_DRAIN_SECONDS),
        "DRAIN_TOKEN_SHA256": hashlib.sha256(os.urandom(32)).hexdigest(),
        "POLICY_PATH": str(policy),
        "TENANTS_PATH": str(tenants),
    }
    environment = {f"PENSTOCK_{name}": value for name, value in settings.items()}
    # Absolute, because the process starts in a folder of its own.
    environment["PYTHONPATH"] = str(SOURCE_ROOT)
    return Command([sys.executable, "-m", "penstock", "limiter"], environment)


def _nginx(place: Place) -> Command:
    program = binaries.server("nginx")
    # A master that runs as root gives its worker to another user, who may not be able to reach this folder.
    user_line = "user root;" if os.geteuid() == 0 else ""
    path = _configure("nginx.conf", place, user_line=user_line)
    return Command([str(program.path), "-p", str(place.folder), "-c", str(path)], program.environment)


def _haproxy(place: Place) -> Command:
    program = binaries.server("haproxy")
    return Command([str(program.path), "-db", "-f", str(_configure("haproxy.cfg", place))], program.environment)


def _envoy(place: Place) -> Command:
    path = _configure("envoy.yaml", place)
    options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return Command([str(binaries.envoy().path), "-c", str(path), *options])


def _aiohttp(place: Place) -> Command:
    return Command([sys.executable, str(aiohttp_proxy.__file__), str(place.port), str(place.backend_port)])


def _configure(file: str, place: Place, **more: str) -> Path:
    path = place.folder / file
    text = Template((RIVALS_FOLDER / file).read_text())
    path.write_text(text.substitute(more, port=place.port, backend_port=place.backend_port))
    return path


DIRECT = Contender("direct", None)
LIMITER = Contender("limiter", _limiter, lambda: f"Python {platform.python_version()}", "/metrics")
NGINX = Contender("nginx", _nginx, lambda: binaries.server("nginx").version("-v"))
HAPROXY = Contender("haproxy", _haproxy, lambda: binaries.server("haproxy").version("-v"))
ENVOY = Contender("envoy", _envoy, lambda: binaries.envoy().version("--version"))
AIOHTTP = Contender("aiohttp", _aiohttp, lambda: f"aiohttp {version('aiohttp')}, uvloop {version('uvloop')}")

ALL = (DIRECT, LIMITER, NGINX, HAPROXY, ENVOY, AIOHTTP)
