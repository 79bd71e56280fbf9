"""The requests: a table of what is sent to which server, grouped by the interface it tries."""

from __future__ import annotations

from e2e.conformance.case import (
    END,
    FORCE,
    LONG,
    PARTS,
    SEA,
    STRANGE,
    SYSTEM,
    TURNS,
    Case,
    chat,
    completion,
    detokenize,
    get,
    messages,
    responses,
    tokenize,
)
from e2e.conformance.completioncases import CHAT, COMPLETIONS

READS = [
    get("reads/health", "/health"),
    get("reads/ping", "/ping"),
    get("reads/ping post", "/ping", method="POST"),
    get("reads/version", "/version"),
    get("reads/load", "/load"),
    get("reads/models", "/v1/models"),
    get("reads/unknown path", "/v1/nothing"),
    get("reads/unknown path unguarded", "/nothing/here"),
    get("reads/completions by get", "/v1/completions"),
    get("reads/chat by delete", "/v1/chat/completions", method="DELETE"),
    get("reads/models by post", "/v1/models", method="POST"),
    get("reads/health by post", "/health", method="POST"),
    get("reads/tokenize by put", "/tokenize", method="PUT"),
]

BODIES = [
    Case(f"bodies/{name} {path.removeprefix('/v1/')}", path, body, content_type=kind)
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses")
    for name, body, kind in (
        ("broken json", b'{"model": nope', "application/json"),
        ("no body", b"", "application/json"),
        ("list", b"[1]", "application/json"),
        ("text", b'"hello"', "application/json"),
        ("null", b"null", "application/json"),
        ("plain type", b"{}", "text/plain"),
        ("empty object", b"{}", "application/json"),
    )
] + [
    Case(
        "bodies/charset",
        "/v1/completions",
        b'{"prompt":"x","max_tokens":1}',
        content_type="application/json; charset=utf-8",
    ),
    Case("bodies/no type", "/v1/completions", b'{"prompt":"x"}', content_type=None),
    Case("bodies/half a surrogate", "/v1/completions", b'{"prompt":"\\ud800","max_tokens":1}'),
    Case("bodies/half a surrogate tokenized", "/tokenize", b'{"prompt":"\\ud800"}'),
    Case("bodies/not utf-8", "/v1/completions", b'{"prompt":"\xff\xfe","max_tokens":1}'),
    Case("bodies/trailing comma", "/tokenize", b'{"prompt":"x",}'),
]

RESPONSES = [
    responses("plain"),
    responses("stream", stream=True),
    responses("instructions", instructions="Be brief."),
    responses(
        "messages",
        input=[
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "So?"},
        ],
    ),
    responses("ends by itself", **END, exact=True),
    responses("ends by itself stream", **END, stream=True, exact=True),
    responses("forced text", **FORCE, exact=True),
    responses("forced text stream", **FORCE, stream=True, exact=True),
    responses("limit missing", drop=("max_output_tokens",), **FORCE, exact=True),
    responses("unknown model", model="gpt-9"),
    responses("no model", drop=("model",)),
    responses("input missing", drop=("input",)),
    responses("temperature negative", temperature=-1),
    responses("temperature text", temperature="hot"),
    responses("prompt template", prompt={"id": "x"}),
    responses("background without store", background=True, store=False),
    responses("metadata and user", metadata={"a": "b"}, user="u-1"),
    responses("above context", max_output_tokens=4000),
    responses("too long", input=LONG),
]

COUNT = "/v1/messages/count_tokens"
MESSAGES = [
    messages("plain"),
    messages("stream", stream=True),
    messages("system", system="Be brief."),
    messages("system parts", system=[{"type": "text", "text": "Be brief."}]),
    messages("turns", messages=TURNS[1:]),
    messages("parts", messages=PARTS),
    messages("unknown model", model="gpt-9"),
    messages("unknown model stream", model="gpt-9", stream=True),
    messages("model empty", model=""),
    messages("model missing", drop=("model",)),
    messages("max_tokens missing", drop=("max_tokens",)),
    messages("max_tokens 0", max_tokens=0),
    messages("max_tokens above context", max_tokens=4000),
    messages("messages missing", drop=("messages",)),
    messages("unknown role", messages=[{"role": "wizard", "content": "x"}]),
    messages("too long", messages=[{"role": "user", "content": LONG}]),
    messages("temperature negative", temperature=-1),
    messages("five stop sequences", stop_sequences=["a", "b", "c", "d", "e"]),
    messages("count", path=COUNT),
    messages("count with system", path=COUNT, system="Be brief."),
    messages("count unknown model", path=COUNT, model="gpt-9"),
    messages("count messages missing", path=COUNT, drop=("messages",)),
]

TOKENS = [
    tokenize("text", model="tiny", prompt=SEA),
    tokenize("text with names", prompt=SEA, return_token_strs=True),
    tokenize("strange letters", prompt=STRANGE, return_token_strs=True),
    tokenize("empty", prompt=""),
    tokenize("without special", prompt=SEA, add_special_tokens=False),
    tokenize("longer than the context", prompt="sea " * 600),
    tokenize("chat", messages=TURNS),
    tokenize("chat open", messages=TURNS, add_generation_prompt=False),
    tokenize("chat with special", messages=SYSTEM, add_special_tokens=True),
    tokenize("unknown model", model="gpt-9", prompt="x"),
    tokenize("nothing"),
    tokenize("prompt number", prompt=5),
    detokenize("tokens", tokens=[1, 77, 683, 0]),
    detokenize("nothing", tokens=[]),
    detokenize("missing"),
    detokenize("negative", tokens=[-1]),
    detokenize("text", tokens="x"),
    detokenize("unknown model", model="gpt-9", tokens=[1]),
    detokenize("half a letter", tokens=[200, 77]),
]

HI = {"prompt": "Hi", "max_tokens": 1}
LOCKED = [
    get("key/models without", "/v1/models", profile="locked"),
    get("key/models with", "/v1/models", profile="locked", headers={"Authorization": "Bearer open-sesame"}),
    get("key/models with second", "/v1/models", profile="locked", headers={"Authorization": "bearer second-key"}),
    get("key/models wrong", "/v1/models", profile="locked", headers={"Authorization": "Bearer sesame"}),
    get("key/models basic", "/v1/models", profile="locked", headers={"Authorization": "Basic open-sesame"}),
    get("key/unknown path without", "/v1/nothing", profile="locked"),
    get("key/health", "/health", profile="locked"),
    get("key/version", "/version", profile="locked"),
    Case("key/completions without", "/v1/completions", HI, profile="locked"),
    Case(
        "key/completions with", "/v1/completions", HI, profile="locked", headers={"Authorization": "Bearer open-sesame"}
    ),
    Case("key/broken json without", "/v1/completions", b"{", profile="locked"),
    Case("key/chat stream without", "/v1/chat/completions", {"messages": SYSTEM, "stream": True}, profile="locked"),
    Case("key/tokenize without", "/tokenize", {"prompt": "x"}, profile="locked", exact=True),
    Case("key/detokenize without", "/detokenize", {"tokens": [77]}, profile="locked", exact=True),
]

DETAILS = [
    completion("details", profile="small"),
    completion("details again", profile="small"),
    completion("details stream", profile="small", stream=True, max_tokens=2),
    chat("details", profile="small"),
    chat("details again", profile="small"),
    chat("details stream", profile="small", stream=True, max_tokens=2),
]

CASES: list[Case] = [*READS, *BODIES, *COMPLETIONS, *CHAT, *RESPONSES, *MESSAGES, *TOKENS, *LOCKED, *DETAILS]
