"""The requests: a table of what is sent to which server, grouped by the interface it tries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

COMMON = ("--served-model-name", "tiny", "tiny-alias", "--max-model-len", "512", "--enforce-eager")
PROFILES: dict[str, tuple[str, ...]] = {
    "plain": (*COMMON, "--max-num-seqs", "8"),
    "locked": (*COMMON, "--max-num-seqs", "2", "--api-key", "open-sesame", "second-key"),
    "small": (
        *(*COMMON, "--max-model-len", "160", "--block-size", "32", "--num-gpu-blocks-override", "12"),
        *("--max-num-seqs", "16", "--enable-prompt-tokens-details", "--enable-force-include-usage"),
    ),
    "seats": (*COMMON, "--max-num-seqs", "2"),
    "queue": (*COMMON, "--max-num-seqs", "2", "--max-num-queued-reqs", "4", "--shutdown-timeout", "20"),
    "prefill": (*COMMON, "--max-num-seqs", "1", "--max-num-queued-tokens", "20"),
}
"""Servers by their flags; a server is started once for all its cases and scenes. CPU wants blocks of 32 tokens."""

FORCED = 77  # the token that spells "H"
FORCE: dict[str, Any] = {"logit_bias": {str(FORCED): 100}}
END: dict[str, Any] = {"logit_bias": {"0": 100}}
SEA = "The old harbour smells of salt, and 3 gulls argue about bread."
STRANGE = "Grüße aus Köln: 日本語, עברית, 🙂🙃 — naïve \t\ttabs\n\nand <|user|> specials"


@dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
        name: Unique, grouped by interface.
        path: With the method POST unless `method` says otherwise.
        body: Sent as JSON; bytes are sent as they are.
        exact: The answer's text is forced, so it is compared too.
    """

    name: str
    path: str
    body: Any = None
    method: str = "POST"
    profile: str = "plain"
    headers: dict[str, str] = field(default_factory=dict)
    exact: bool = False
    content_type: str | None = "application/json"

    def data(self) -> bytes | None:
        """Return the bytes of the body."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()


def _completion(
    name: str, *, exact: bool = False, profile: str = "plain", drop: tuple[str, ...] = (), **fields: Any
) -> Case:
    body = {"model": "tiny", "prompt": SEA, "max_tokens": 4, "temperature": 0, **fields}
    return Case(
        f"completions/{name}",
        "/v1/completions",
        {k: v for k, v in body.items() if k not in drop},
        exact=exact,
        profile=profile,
    )


def _chat(name: str, *, exact: bool = False, profile: str = "plain", drop: tuple[str, ...] = (), **fields: Any) -> Case:
    messages = [{"role": "user", "content": SEA}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 4, "temperature": 0, **fields}
    return Case(
        f"chat/{name}",
        "/v1/chat/completions",
        {k: v for k, v in body.items() if k not in drop},
        exact=exact,
        profile=profile,
    )


def _responses(name: str, *, exact: bool = False, drop: tuple[str, ...] = (), **fields: Any) -> Case:
    body = {"model": "tiny", "input": SEA, "max_output_tokens": 4, "temperature": 0, **fields}
    return Case(f"responses/{name}", "/v1/responses", {k: v for k, v in body.items() if k not in drop}, exact=exact)


def _messages(name: str, *, path: str = "/v1/messages", drop: tuple[str, ...] = (), **fields: Any) -> Case:
    messages = [{"role": "user", "content": SEA}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 4, "temperature": 0, **fields}
    return Case(f"messages/{name}", path, {k: v for k, v in body.items() if k not in drop})


def _tokenize(name: str, **fields: Any) -> Case:
    return Case(f"tokenize/{name}", "/tokenize", fields, exact=True)


def _detokenize(name: str, **fields: Any) -> Case:
    return Case(f"detokenize/{name}", "/detokenize", fields, exact=True)


def _get(name: str, path: str, *, method: str = "GET", **fields: Any) -> Case:
    return Case(name, path, method=method, content_type=None, **fields)


USAGE = {"include_usage": True}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}
LONG = "and then " * 400

READS = [
    _get("reads/health", "/health"),
    _get("reads/ping", "/ping"),
    _get("reads/ping post", "/ping", method="POST"),
    _get("reads/version", "/version"),
    _get("reads/load", "/load"),
    _get("reads/models", "/v1/models"),
    _get("reads/unknown path", "/v1/nothing"),
    _get("reads/unknown path unguarded", "/nothing/here"),
    _get("reads/completions by get", "/v1/completions"),
    _get("reads/chat by delete", "/v1/chat/completions", method="DELETE"),
    _get("reads/models by post", "/v1/models", method="POST"),
    _get("reads/health by post", "/health", method="POST"),
    _get("reads/tokenize by put", "/tokenize", method="PUT"),
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

COMPLETIONS = [
    _completion("plain"),
    _completion("stream", stream=True),
    _completion("stream with usage", stream=True, stream_options=USAGE),
    _completion("stream with usage always", stream=True, stream_options=CONTINUOUS, max_tokens=3),
    _completion("stream options without stream", stream_options=USAGE),
    _completion("stream options empty", stream=True, stream_options={}),
    _completion("alias", model="tiny-alias"),
    _completion("no model", drop=("model",)),
    _completion("model null", model=None),
    _completion("unknown model", model="gpt-9"),
    _completion("unknown model stream", model="gpt-9", stream=True),
    _completion("strange letters", prompt=STRANGE),
    _completion("two prompts", prompt=["Hello", SEA]),
    _completion("two prompts stream", prompt=["Hello", SEA], stream=True, stream_options=USAGE, max_tokens=1),
    _completion("token ids", prompt=[1, 77, 683]),
    _completion("lists of token ids", prompt=[[1, 77], [1, 683, 5]]),
    _completion("token id out of vocabulary", prompt=[1, 5000]),
    _completion("token id negative", prompt=[-1]),
    _completion("prompt empty", prompt=""),
    _completion("prompt missing", drop=("prompt",)),
    _completion("prompt null", prompt=None),
    _completion("prompt empty list", prompt=[]),
    _completion("prompt number", prompt=5),
    _completion("prompt mixed list", prompt=["x", 1]),
    _completion("n 2", n=2, temperature=1),
    _completion("n 2 greedy", n=2),
    _completion("n 0", n=0, temperature=1),
    _completion("n text", n="two"),
    _completion("max_tokens default", drop=("max_tokens",)),
    _completion("max_tokens null", max_tokens=None),
    _completion("max_tokens 0", max_tokens=0),
    _completion("max_tokens negative", max_tokens=-3),
    _completion("max_tokens above context", max_tokens=4000),
    _completion("max_tokens up to context", max_tokens=512, **FORCE, exact=True),
    _completion("max_tokens text", max_tokens="many"),
    _completion("max_tokens fraction", max_tokens=1.5),
    _completion("prompt too long", prompt=LONG),
    _completion("prompt far too long", prompt=LONG * 20),
    _completion("prompt of exactly the context", prompt=[1, *[77] * 511]),
    _completion("prompt one below the context", prompt=[1, *[77] * 510]),
    _completion("prompt above the context in ids", prompt=[1, *[77] * 599]),
    _completion("temperature negative", temperature=-1),
    _completion("temperature 3", temperature=3),
    _completion("temperature text", temperature="hot"),
    _completion("top_p 0", top_p=0),
    _completion("top_p 2", top_p=2),
    _completion("top_k -2", top_k=-2),
    _completion("min_p 2", min_p=2),
    _completion("presence_penalty 3", presence_penalty=3),
    _completion("frequency_penalty -3", frequency_penalty=-3),
    _completion("repetition_penalty 0", repetition_penalty=0),
    _completion("min_tokens above max_tokens", min_tokens=9),
    _completion("min_tokens negative", min_tokens=-1),
    _completion("seed", seed=7, temperature=1),
    _completion("seed too large", seed=2**70),
    _completion("forced text", **FORCE, exact=True),
    _completion("forced text stream", **FORCE, stream=True, exact=True),
    _completion("ends by itself", **END, exact=True),
    _completion("ends by itself stream", **END, stream=True, stream_options=USAGE, exact=True),
    _completion("ignore_eos", **END, ignore_eos=True, exact=True),
    _completion("min_tokens holds the end back", **END, min_tokens=2),
    _completion("stop string", **FORCE, stop="HH", exact=True),
    _completion("stop string stream", **FORCE, stop="HH", stream=True, stream_options=USAGE, exact=True),
    _completion("stop string kept", **FORCE, stop=["zzz", "HHH"], include_stop_str_in_output=True, exact=True),
    _completion("stop token", **FORCE, stop_token_ids=[FORCED], exact=True),
    _completion("stop token stream", **FORCE, stop_token_ids=[FORCED], stream=True, exact=True),
    _completion("stop token out of vocabulary", stop_token_ids=[9999]),
    _completion("stop empty string", stop=""),
    _completion("stop number", stop=5),
    _completion("five stop strings", stop=["a", "b", "c", "d", "e"]),
    _completion("stop null", stop=None),
    _completion("echo", echo=True),
    _completion("echo stream", echo=True, stream=True),
    _completion("echo forced", echo=True, **FORCE, exact=True),
    _completion("echo only", echo=True, max_tokens=0, exact=True),
    _completion("echo with logprobs", echo=True, logprobs=1),
    _completion("echo token ids", echo=True, prompt=[1, 77, 683], **FORCE, exact=True),
    _completion("logprobs 0", logprobs=0),
    _completion("logprobs 3", logprobs=3),
    _completion("logprobs stream", logprobs=2, stream=True, max_tokens=2),
    _completion("logprobs 21", logprobs=21),
    _completion("logprobs 21 stream", logprobs=21, stream=True),
    _completion("logprobs negative", logprobs=-2),
    _completion("logprobs text", logprobs="two"),
    _completion("prompt_logprobs", prompt_logprobs=1),
    _completion("prompt_logprobs stream", prompt_logprobs=1, stream=True),
    _completion("return_token_ids", return_token_ids=True, **FORCE),
    _completion("return_token_ids stream", return_token_ids=True, stream=True, max_tokens=2, **FORCE),
    _completion("return_tokens_as_token_ids", return_tokens_as_token_ids=True, logprobs=1),
    _completion("allowed_token_ids", allowed_token_ids=[FORCED], exact=True),
    _completion("allowed_token_ids empty", allowed_token_ids=[]),
    _completion("allowed_token_ids out of vocabulary", allowed_token_ids=[4096]),
    _completion("logit_bias out of vocabulary", logit_bias={"4096": 1}),
    _completion("logit_bias no number", logit_bias={"H": 1}),
    _completion("logit_bias list", logit_bias=[1]),
    _completion("many wrong types", max_tokens="x", temperature="hot", stop=5),
    _completion("unknown field", colour="blue"),
    _completion("user and suffix", user="u-1"),
    _completion("stream text", stream="perhaps"),
    _completion("priority", priority=3),
    _completion("cache_salt", cache_salt="pepper"),
    _completion("without add_special_tokens", add_special_tokens=False),
    _completion("truncate_prompt_tokens", truncate_prompt_tokens=5),
    _completion("wrong model and wrong type", model="gpt-9", max_tokens="x"),
    _completion("wrong model and negative temperature", model="gpt-9", temperature=-1),
    Case(
        "completions/request id",
        "/v1/completions",
        {"prompt": "Hi", "max_tokens": 1},
        headers={"X-Request-Id": "mine-1"},
    ),
]

SYSTEM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SEA}]
TURNS = [*SYSTEM, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]

CHAT = [
    _chat("plain"),
    _chat("stream", stream=True),
    _chat("stream with usage", stream=True, stream_options=USAGE),
    _chat("stream with usage always", stream=True, stream_options=CONTINUOUS, max_tokens=3),
    _chat("stream options without stream", stream_options=USAGE),
    _chat("no model", drop=("model",)),
    _chat("unknown model", model="gpt-9"),
    _chat("unknown model stream", model="gpt-9", stream=True),
    _chat("system", messages=SYSTEM),
    _chat("turns", messages=TURNS),
    _chat("parts", messages=PARTS),
    _chat("strange letters", messages=[{"role": "user", "content": STRANGE}]),
    _chat("messages missing", drop=("messages",)),
    _chat("messages text", messages="hello"),
    _chat("messages empty", messages=[]),
    _chat("unknown role", messages=[{"role": "wizard", "content": "x"}]),
    _chat("max_tokens missing", drop=("max_tokens",), **FORCE, exact=True),
    _chat("max_completion_tokens", drop=("max_tokens",), max_completion_tokens=3),
    _chat("both limits", max_completion_tokens=2, max_tokens=5),
    _chat("max_tokens 0", max_tokens=0),
    _chat("max_completion_tokens above context", drop=("max_tokens",), max_completion_tokens=4000),
    _chat("max_tokens above context", max_tokens=4000),
    _chat("prompt too long", messages=[{"role": "user", "content": LONG}]),
    _chat("prompt too long stream", messages=[{"role": "user", "content": LONG}], stream=True),
    _chat("n 2", n=2, temperature=1),
    _chat("n 2 stream", n=2, temperature=1, stream=True, stream_options=USAGE, max_tokens=1),
    _chat("n null", n=None),
    _chat("n 2 greedy", n=2),
    _chat("temperature negative", temperature=-3),
    _chat("temperature text", temperature="hot"),
    _chat("top_p 0", top_p=0),
    _chat("forced text", **FORCE, exact=True),
    _chat("forced text stream", **FORCE, stream=True, exact=True),
    _chat("ends by itself", **END, exact=True),
    _chat("ends by itself stream", **END, stream=True, exact=True),
    _chat("stop string", **FORCE, stop=["HH"], exact=True),
    _chat("stop string stream", **FORCE, stop=["HHH"], stream=True, exact=True),
    _chat("stop token", **FORCE, stop_token_ids=[FORCED], exact=True),
    _chat("logprobs", logprobs=True),
    _chat("top_logprobs", logprobs=True, top_logprobs=2),
    _chat("top_logprobs stream", logprobs=True, top_logprobs=2, stream=True, max_tokens=2),
    _chat("top_logprobs without logprobs", top_logprobs=2),
    _chat("top_logprobs 21", logprobs=True, top_logprobs=21),
    _chat("top_logprobs negative", logprobs=True, top_logprobs=-2),
    _chat("top_logprobs text", logprobs=True, top_logprobs="two"),
    _chat("prompt_logprobs", prompt_logprobs=0),
    _chat("return_token_ids", return_token_ids=True, **FORCE),
    _chat("return_token_ids stream", return_token_ids=True, stream=True, max_tokens=2, **FORCE),
    _chat("tools empty", tools=[]),
    _chat("continue_final_message", messages=TURNS[:3], continue_final_message=True, add_generation_prompt=False),
    _chat("continue and generate", continue_final_message=True, add_generation_prompt=True),
    _chat("echo", messages=TURNS[:3], continue_final_message=True, add_generation_prompt=False, echo=True, **FORCE),
    _chat("add_special_tokens", add_special_tokens=True),
    _chat("many wrong types", max_tokens="x", temperature="hot", n="two"),
]

RESPONSES = [
    _responses("plain"),
    _responses("stream", stream=True),
    _responses("instructions", instructions="Be brief."),
    _responses(
        "messages",
        input=[
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "So?"},
        ],
    ),
    _responses("ends by itself", **END, exact=True),
    _responses("ends by itself stream", **END, stream=True, exact=True),
    _responses("forced text", **FORCE, exact=True),
    _responses("forced text stream", **FORCE, stream=True, exact=True),
    _responses("limit missing", drop=("max_output_tokens",), **FORCE, exact=True),
    _responses("unknown model", model="gpt-9"),
    _responses("no model", drop=("model",)),
    _responses("input missing", drop=("input",)),
    _responses("temperature negative", temperature=-1),
    _responses("temperature text", temperature="hot"),
    _responses("prompt template", prompt={"id": "x"}),
    _responses("background without store", background=True, store=False),
    _responses("metadata and user", metadata={"a": "b"}, user="u-1"),
    _responses("above context", max_output_tokens=4000),
    _responses("too long", input=LONG),
]

COUNT = "/v1/messages/count_tokens"
MESSAGES = [
    _messages("plain"),
    _messages("stream", stream=True),
    _messages("system", system="Be brief."),
    _messages("system parts", system=[{"type": "text", "text": "Be brief."}]),
    _messages("turns", messages=TURNS[1:]),
    _messages("parts", messages=PARTS),
    _messages("unknown model", model="gpt-9"),
    _messages("unknown model stream", model="gpt-9", stream=True),
    _messages("model empty", model=""),
    _messages("model missing", drop=("model",)),
    _messages("max_tokens missing", drop=("max_tokens",)),
    _messages("max_tokens 0", max_tokens=0),
    _messages("max_tokens above context", max_tokens=4000),
    _messages("messages missing", drop=("messages",)),
    _messages("unknown role", messages=[{"role": "wizard", "content": "x"}]),
    _messages("too long", messages=[{"role": "user", "content": LONG}]),
    _messages("temperature negative", temperature=-1),
    _messages("five stop sequences", stop_sequences=["a", "b", "c", "d", "e"]),
    _messages("count", path=COUNT),
    _messages("count with system", path=COUNT, system="Be brief."),
    _messages("count unknown model", path=COUNT, model="gpt-9"),
    _messages("count messages missing", path=COUNT, drop=("messages",)),
]

TOKENS = [
    _tokenize("text", model="tiny", prompt=SEA),
    _tokenize("text with names", prompt=SEA, return_token_strs=True),
    _tokenize("strange letters", prompt=STRANGE, return_token_strs=True),
    _tokenize("empty", prompt=""),
    _tokenize("without special", prompt=SEA, add_special_tokens=False),
    _tokenize("longer than the context", prompt="sea " * 600),
    _tokenize("chat", messages=TURNS),
    _tokenize("chat open", messages=TURNS, add_generation_prompt=False),
    _tokenize("chat with special", messages=SYSTEM, add_special_tokens=True),
    _tokenize("unknown model", model="gpt-9", prompt="x"),
    _tokenize("nothing"),
    _tokenize("prompt number", prompt=5),
    _detokenize("tokens", tokens=[1, 77, 683, 0]),
    _detokenize("nothing", tokens=[]),
    _detokenize("missing"),
    _detokenize("negative", tokens=[-1]),
    _detokenize("text", tokens="x"),
    _detokenize("unknown model", model="gpt-9", tokens=[1]),
    _detokenize("half a letter", tokens=[200, 77]),
]

HI = {"prompt": "Hi", "max_tokens": 1}
LOCKED = [
    _get("key/models without", "/v1/models", profile="locked"),
    _get("key/models with", "/v1/models", profile="locked", headers={"Authorization": "Bearer open-sesame"}),
    _get("key/models with second", "/v1/models", profile="locked", headers={"Authorization": "bearer second-key"}),
    _get("key/models wrong", "/v1/models", profile="locked", headers={"Authorization": "Bearer sesame"}),
    _get("key/models basic", "/v1/models", profile="locked", headers={"Authorization": "Basic open-sesame"}),
    _get("key/unknown path without", "/v1/nothing", profile="locked"),
    _get("key/health", "/health", profile="locked"),
    _get("key/version", "/version", profile="locked"),
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
    _completion("details", profile="small"),
    _completion("details again", profile="small"),
    _completion("details stream", profile="small", stream=True, max_tokens=2),
    _chat("details", profile="small"),
    _chat("details again", profile="small"),
    _chat("details stream", profile="small", stream=True, max_tokens=2),
]

CASES: list[Case] = [*READS, *BODIES, *COMPLETIONS, *CHAT, *RESPONSES, *MESSAGES, *TOKENS, *LOCKED, *DETAILS]
