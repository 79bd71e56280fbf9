"""The made-up model that both vLLM and its stand-in serve: a two-layer Llama with random weights and a real tokenizer.

`python -m e2e.fakevllm.model FOLDER` writes it: the same bytes every time, from the text and the seed below, without
any library. The weights are noise, so answers mean nothing, but every token is computed, and 1,024 tokens of vocabulary
keep it at one megabyte.
"""

from __future__ import annotations

import array
import json
import random
import struct
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from e2e.fakevllm.tokenizer import PRE_TOKENIZER, WORDS, byte_letters

SEED = 20
VOCABULARY = 1024
HIDDEN = 128
HEADS = 2  # of size 64: vLLM's CPU attention refuses smaller ones
LAYERS = 2
INNER = 256
CONTEXT_TOKENS = 4096
END, BEGIN, SYSTEM, USER, ASSISTANT = SPECIAL = ("<|end|>", "<|begin|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TEXT = """
A server answers many people at once, and each of them believes to be alone. The first asks for a short poem about the
sea, the second wants to know why the sky is blue, the third sends a long report and expects three plain sentences.
Every question becomes a row of numbers. The machine reads the numbers, keeps what it has understood in blocks of memory
and writes one word after another until it has nothing more to say. When the memory is full it must choose: somebody has
to wait, or somebody loses the work already done and starts again from the beginning. Good operators watch how much is
waiting, how quickly words appear, and whether the queue grows faster than it shrinks. They add another copy when the
load stays high, and take one away at night, never before the last answer has left the building. A rolling update
replaces old copies by new ones while people keep talking; nobody should notice. Engines differ in small matters such as
names of counters, order of fields and behaviour at shutdown, and those small matters are where most surprises come
from. Therefore we measure instead of guessing: count requests, count tokens, write down every error with its status,
and compare both sides line by line. If they are equal, tests may use the cheap one. If not, the difference has to be
explained or removed. Weather, mountains, rivers, trains, bread, cheese, violins, winter, summer, children, teachers,
doctors and gardens occur in ordinary questions, so this text mentions them too. Numbers do as well: 0, 1, 2, 3, 4, 5,
6, 7, 8, 9, 10, 16, 32, 64, 100, 128, 200, 256, 404, 429, 500, 503, 512, 1000, 1024, 2048 and 4096. Please summarise,
translate, explain, list, describe, compare, continue, correct and classify are what users usually request. Hello, thank
you, goodbye! What is the capital of France? How does a bicycle stay upright? Tell me something surprising about bees,
lighthouses, glaciers or the history of chess. def main(): return {"role": "user", "content": "text", "stream": true}
Some evenings the little harbour smells of tar, rope and fresh paint; fishermen repair their nets under yellow lamps,
gulls argue on wooden posts, and far beyond the breakwater a freighter blinks twice before turning northward. Nothing
here hurries. Grandmother used to claim that patience, like salt, improves almost everything except coffee. Quantum
physics, jazz, zebras, oxygen, volcanoes, pyramids, kitchens, envelopes, umbrellas, philosophy, democracy, algorithms.
"""


def train(text: str, size: int) -> list[tuple[str, str]]:
    """Return the merges of a byte-level BPE, most frequent pair first, ties in alphabetical order.

    Args:
        text: What to learn from.
        size: Number of merges.

    Raises:
        ValueError: The text is too short for that many merges.
    """
    letters = byte_letters()
    words = Counter(tuple(letters[byte] for byte in word.encode()) for word in WORDS.findall(text))
    merges: list[tuple[str, str]] = []
    while len(merges) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        if not pairs:
            raise ValueError(f"the text gives {len(merges)} merges, {size} are wanted: lengthen it")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = Counter({_merge(word, best): count for word, count in words.items()})
    return merges


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    merged: list[str] = []
    at = 0
    while at < len(word):
        if word[at : at + 2] == pair:
            merged.append(pair[0] + pair[1])
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return tuple(merged)


@cache
def tokenizer_description() -> dict[str, Any]:
    """Return the contents of `tokenizer.json`; one object for all callers."""
    merges = train(TEXT, VOCABULARY - len(SPECIAL) - 256)
    tokens = [*SPECIAL, *byte_letters(), *(left + right for left, right in merges)]
    begin = {"SpecialToken": {"id": BEGIN, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZER,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [SPECIAL.index(BEGIN)], "tokens": [BEGIN]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }


def model_config() -> dict[str, Any]:
    """Return the contents of `config.json`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": SPECIAL.index(BEGIN),
        "eos_token_id": SPECIAL.index(END),
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "initializer_range": 0.02,
        "max_position_embeddings": CONTEXT_TOKENS,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": VOCABULARY,
    }


def weight_shapes() -> dict[str, tuple[int, ...]]:
    """Return each tensor's name and shape; norms are vectors, all else is a matrix."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name in ("q", "k", "v", "o"):
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = (HIDDEN, HIDDEN)
        shapes[f"{prefix}.mlp.gate_proj.weight"] = (INNER, HIDDEN)
        shapes[f"{prefix}.mlp.up_proj.weight"] = (INNER, HIDDEN)
        shapes[f"{prefix}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        shapes[f"{prefix}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (HIDDEN,)
    return shapes


@cache
def weights() -> bytes:
    """Return the contents of `model.safetensors`: a JSON header with offsets, then the numbers, little-endian."""
    generator = random.Random(SEED)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in weight_shapes().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [generator.gauss(0.0, 0.05) for _ in range(count)]
        numbers = array.array("f", values)
        if sys.byteorder == "big":
            numbers.byteswap()
        start = len(data)
        data += numbers.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def write(folder: Path) -> None:
    """Fill a folder with the model as Hugging Face lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    documents: dict[str, Any] = {
        "config.json": model_config(),
        "generation_config.json": {"bos_token_id": SPECIAL.index(BEGIN), "eos_token_id": SPECIAL.index(END)},
        "tokenizer.json": tokenizer_description(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, contents in documents.items():
        (folder / name).write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n")
    (folder / "model.safetensors").write_bytes(weights())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
