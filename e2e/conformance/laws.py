"""Statements about any server, tried with prompts made up on the spot: a replayer of recordings fails them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from e2e.conformance.targets import Target
from e2e.fakevllm import model
from e2e.fakevllm.tokenizer import Tokenizer
from e2e.fakevllm.wire.bodies import Message
from e2e.fakevllm.wire.rendering import chat_text

JSON = {"content-type": "application/json"}
WORDS = model.TEXT.split()
LETTERS = "éßñ漢字🙂 \n\t<|>{}\"'\\0189"


class LawBrokenError(AssertionError):
    """A law does not hold; the message gives the prompt."""


class Bench:
    """A server, the tokenizer of its model, and a source of new prompts."""

    def __init__(self, target: Target, seed: int) -> None:
        self.target = target
        self.tokenizer = Tokenizer(model.tokenizer_description())
        self._random = random.Random(seed)

    def prompt(self) -> str:
        """Return a text nobody has recorded."""
        parts = self._random.choices(WORDS, k=self._random.randint(1, 30))
        noise = "".join(self._random.choices(LETTERS, k=self._random.randint(0, 12)))
        return " ".join(parts) + noise

    def ask(self, path: str, **fields: Any) -> Any:
        """Send a request that must succeed and return its document."""
        reply = self.target.send("POST", path, data=json.dumps(fields).encode(), headers=JSON)
        require(reply.status == 200, f"{path} answered {reply.status} to {fields}: {reply.text[:200]}")
        return json.loads(reply.body)

    def events(self, path: str, **fields: Any) -> list[Any]:
        """Send a streaming request and return its events' documents."""
        data = json.dumps({**fields, "stream": True}).encode()
        lines = self.target.send("POST", path, data=data, headers=JSON).text.split("\n")
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def require(holds: bool, message: str) -> None:
    """Raise `LawBrokenError` unless it holds."""
    if not holds:
        raise LawBrokenError(message)


def completion_usage(bench: Bench) -> None:
    """A completion's prompt tokens are those of the tokenizer, with the begin token."""
    prompt = bench.prompt()
    usage = bench.ask("/v1/completions", prompt=prompt, max_tokens=2, ignore_eos=True)["usage"]
    expected = len(bench.tokenizer.encode(prompt, special=True))
    require(usage["prompt_tokens"] == expected, f"{usage} for {prompt!r}, {expected} expected")
    require(usage["total_tokens"] == expected + 2, f"{usage} for {prompt!r}")


def chat_usage(bench: Bench) -> None:
    """A chat's prompt tokens are those of the rendered template."""
    messages = [{"role": "system", "content": bench.prompt()}, {"role": "user", "content": bench.prompt()}]
    usage = bench.ask("/v1/chat/completions", messages=messages, max_tokens=2)["usage"]
    text = chat_text([Message(**message) for message in messages])
    expected = len(bench.tokenizer.encode(text, special=False))
    require(usage["prompt_tokens"] == expected, f"{usage} for {messages!r}, {expected} expected")


def tokenize(bench: Bench) -> None:
    """Tokenizing gives the tokenizer's ids, and they spell the text again."""
    prompt = bench.prompt()
    tokens = bench.ask("/tokenize", prompt=prompt, add_special_tokens=False)["tokens"]
    require(tokens == bench.tokenizer.encode(prompt, special=False), f"other tokens for {prompt!r}: {tokens}")
    again = bench.ask("/detokenize", tokens=tokens)["prompt"]
    require(again == prompt, f"{again!r} instead of {prompt!r}")


def anthropic_count(bench: Bench) -> None:
    """Counting, answering and streaming a message report the same input tokens."""
    fields = {"model": "tiny", "messages": [{"role": "user", "content": bench.prompt()}]}
    counted = bench.ask("/v1/messages/count_tokens", **fields)["input_tokens"]
    answered = bench.ask("/v1/messages", max_tokens=2, **fields)["usage"]["input_tokens"]
    streamed = bench.events("/v1/messages", max_tokens=2, **fields)[0]["message"]["usage"]["input_tokens"]
    require(counted == answered == streamed, f"{counted}, {answered}, {streamed} for {fields}")


def repeatable(bench: Bench) -> None:
    """The same prompt gives the same answer when nothing is left to chance."""
    fields = {"prompt": bench.prompt(), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    answers = {bench.ask("/v1/completions", **fields)["choices"][0]["text"] for _ in range(2)}
    require(len(answers) == 1, f"two answers for {fields}: {answers}")


def depends_on_prompt(bench: Bench) -> None:
    """Different prompts give different answers."""
    answers = [
        tuple(
            bench.ask(
                "/v1/completions",
                prompt=bench.prompt(),
                max_tokens=12,
                temperature=1,
                seed=3,
                return_token_ids=True,
                ignore_eos=True,
            )["choices"][0]["token_ids"]
        )
        for _ in range(6)
    ]
    require(len(set(answers)) == 6, f"the same answer to different prompts: {answers}")


def depends_on_seed(bench: Bench) -> None:
    """Different seeds give different answers, the same seed the same one."""
    prompt = bench.prompt()

    def answer(seed: int) -> tuple[int, ...]:
        fields = {"prompt": prompt, "max_tokens": 12, "temperature": 1, "seed": seed, "ignore_eos": True}
        return tuple(bench.ask("/v1/completions", return_token_ids=True, **fields)["choices"][0]["token_ids"])

    require(answer(1) == answer(1), f"two answers for one seed and {prompt!r}")
    require(len({answer(seed) for seed in range(5)}) == 5, f"seeds do not matter for {prompt!r}")


def stream_equals_whole(bench: Bench) -> None:
    """A stream's pieces put together are the answer in one piece, with the same usage."""
    fields = {"prompt": bench.prompt(), "max_tokens": 10, "temperature": 0, "ignore_eos": True}
    whole = bench.ask("/v1/completions", **fields)
    events = bench.events("/v1/completions", stream_options={"include_usage": True}, **fields)
    pieces = "".join(choice["text"] for event in events for choice in event["choices"])
    require(pieces == whole["choices"][0]["text"], f"{pieces!r} instead of {whole['choices'][0]['text']!r}")
    short = {key: value for key, value in whole["usage"].items() if value is not None}
    require(events[-1]["usage"] == short, f"{events[-1]['usage']} instead of {short}")


def token_ids_spell_text(bench: Bench) -> None:
    """The token ids that are returned spell the text that is returned."""
    prompt = bench.prompt()
    choice = bench.ask("/v1/completions", prompt=prompt, max_tokens=10, return_token_ids=True, ignore_eos=True)[
        "choices"
    ][0]
    spelled = bench.tokenizer.decode(choice["token_ids"])
    require(spelled == choice["text"], f"{spelled!r} instead of {choice['text']!r}")
    require(choice["prompt_token_ids"] == bench.tokenizer.encode(prompt, special=True), f"other ids for {prompt!r}")


def message_stops(bench: Bench) -> None:
    """A message that meets a stop sequence says which, whole and streamed, and does not contain it."""
    letters = ["e", "a", "s", " "]
    # Chance decides the text, so that it does not run in circles without any of these letters.
    fields = {"model": "tiny", "stop_sequences": letters, "max_tokens": 400, "temperature": 1}
    fields["messages"] = [{"role": "user", "content": bench.prompt()}]
    whole = bench.ask("/v1/messages", **fields)
    require(whole["stop_reason"] == "stop_sequence", f"{whole['stop_reason']} for {fields}")
    text = "".join(block["text"] for block in whole["content"])
    events = bench.events("/v1/messages", **fields)
    end = events[-2]["delta"]
    require(end["stop_reason"] == "stop_sequence", f"{end} for {fields}")
    pieces = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    for stopped_by, shown in ((whole["stop_sequence"], text), (end["stop_sequence"], pieces)):
        require(stopped_by in letters, f"{stopped_by!r} for {fields}")
        require(not any(letter in shown for letter in letters), f"{shown!r} for {fields}")


def forced_text(bench: Bench) -> None:
    """A bias of 100 decides every token."""
    (token,) = bench.tokenizer.encode("!", special=False)
    choice = bench.ask("/v1/completions", prompt=bench.prompt(), max_tokens=4, logit_bias={str(token): 100})["choices"][
        0
    ]
    require(choice["text"] == "!!!!", f"{choice['text']!r}")


LAWS: dict[str, Callable[[Bench], None]] = {
    law.__name__.replace("_", " "): law
    for law in (
        completion_usage,
        chat_usage,
        tokenize,
        anthropic_count,
        repeatable,
        depends_on_prompt,
        depends_on_seed,
        stream_equals_whole,
        token_ids_spell_text,
        message_stops,
        forced_text,
    )
}
