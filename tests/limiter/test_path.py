"""Paths: every spelling of a path is the path, and nothing else gets through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.engine import EngineType
from penstock.engines.engine import for_type
from penstock.engines.facts import RequestClass
from penstock.limiter.path import Route, Router, normalise, route
from penstock.limiter.refusal import Dialect, Refused

ALLOWED = for_type(EngineType.VLLM).facts.allowed_paths


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("/v1/models", "/v1/models"),
        ("//v1///models", "/v1/models"),
        ("/./v1/./models", "/v1/models"),
        ("/x/../v1/models", "/v1/models"),
        ("/../../v1/models", "/v1/models"),
        ("/%76%31/models", "/v1/models"),
        ("/v1%2Fmodels", "/v1/models"),
        ("/v1%2fmodels", "/v1/models"),
        ("/x/%2E%2e/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models/"),
        ("/v1/models/..", "/v1/"),
        ("/v1%252Fmodels", "/v1%252Fmodels"),
        ("/v1/models%00", "/v1/models%00"),
        ("/v1/models%0d%0a", "/v1/models%0D%0A"),
        ("/v1;x/models", "/v1;x/models"),
        ("/v1\\models", "/v1\\models"),
        ("/", "/"),
        ("/..", "/"),
    ],
)
def test_a_path_has_one_canonical_spelling(raw: str, canonical: str) -> None:
    assert normalise(raw.encode()) == canonical


@given(st.text(st.sampled_from("/.%2eFfa41c~"), max_size=12).map(lambda tail: "/" + tail))
def test_normalising_never_leaves_dots_or_doubled_slashes(raw: str) -> None:
    try:
        path = normalise(raw.encode())
    except Refused:
        return
    assert path.startswith("/")
    assert "//" not in path
    assert not {".", ".."} & set(path.split("/"))


def test_the_query_is_sent_as_it_came_behind_the_checked_path() -> None:
    found = route(b"//v1/./models?a=%2F..//&b", b"GET", ALLOWED)
    assert (found.target, found.request_class) == (b"/v1/models?a=%2F..//&b", RequestClass.READ)


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/metrics", "GET", 404),
        ("/invocations", "POST", 404),
        ("/v1/load_lora_adapter", "POST", 404),
        ("/sleep", "POST", 404),
        ("/v1/models/", "GET", 404),
        ("/v1/chat/completions/..%2f..%2f..%2fmetrics", "GET", 404),
        ("/v1%2525", "GET", 404),
        ("/v1/%zz", "GET", 400),
        ("/v1/models%", "GET", 400),
        ("/v1/models", "POST", 405),
        ("/v1/models", "DELETE", 405),
        ("/v1/chat/completions", "GET", 405),
        ("/v1/chat/completions", "HEAD", 405),
    ],
)
def test_everything_else_is_refused(target: str, method: str, status: int) -> None:
    with pytest.raises(Refused) as refused:
        route(target.encode(), method.encode(), ALLOWED)
    assert refused.value.status == status


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/embeddings"])
def test_generation_needs_a_permit_and_its_preflight_does_not(path: str) -> None:
    assert route(path.encode(), b"POST", ALLOWED).request_class is RequestClass.GENERATION
    assert route(path.encode(), b"OPTIONS", ALLOWED).request_class is RequestClass.READ


def test_the_dialect_follows_the_path() -> None:
    assert route(b"/v1/messages", b"POST", ALLOWED).dialect is Dialect.ANTHROPIC
    assert route(b"/v1/completions", b"POST", ALLOWED).dialect is Dialect.OPENAI


def test_405_names_the_methods_the_path_has() -> None:
    with pytest.raises(Refused) as refused:
        route(b"/v1/models", b"PUT", ALLOWED)
    assert refused.value.allow == ("GET", "HEAD", "OPTIONS")


@pytest.mark.parametrize("target", ["/v1/models", "/v1/models?a=b", "//v1/./models", "/v1/models/", "/%761/models"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_a_router_finds_what_route_finds(target: str, method: str) -> None:
    def found(find: Callable[[], Route]) -> object:
        try:
            return find()
        except Refused as refused:
            return refused.reason

    router = Router(ALLOWED)
    expected = found(lambda: route(target.encode(), method.encode(), ALLOWED))
    assert found(lambda: router.route(target.encode(), method.encode())) == expected
