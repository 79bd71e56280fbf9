"""`vllm serve MODEL [flags]`: the flags of vLLM, each from the version that brought it.

Flags that change nothing here are known and accepted all the same; an unknown one ends the start with exit status 2,
as argparse does for vLLM. What belongs to the stand-in alone comes from the environment:

    FAKEVLLM_VERSION        emulated version, 0.32.0
    FAKEVLLM_STEP_SECONDS   duration of an engine step, 0.005
    FAKEVLLM_TOKEN_SECONDS  addition per token computed in a step, 0
    FAKEVLLM_START_SECONDS  time to load, 0
    FAKEVLLM_FAULTS         JSON list of faults, see `faults`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from e2e.fakevllm.engine import Clock, Limits
from e2e.fakevllm.faults import FaultError, Faults
from e2e.fakevllm.metrics import ALWAYS, Version
from e2e.fakevllm.server import Process, Settings
from e2e.fakevllm.tokenizer import Tokenizer, TokenizerError
from e2e.fakevllm.wire.rendering import MAX_LOGPROBS, Model

BUILT_IN_MODEL_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: the type of its value (None for a switch), the default, and the version that brought it."""

    kind: Callable[[str], Any] | None = str
    default: object = None
    since: Version = ALWAYS
    many: bool = False


def human_readable_int_or_auto(text: str) -> int | None:
    """Return the number that `4096`, `8k` (8,000) or `8K` (8,192) means; None for `auto`."""
    if text in ("auto", "-1"):
        return None
    powers = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    factor = powers.get(text[-1:], 1)
    return round(float(text.removesuffix(text[-1]) if factor > 1 else int(text)) * factor)


SWITCH = Flag(None, default=False)
TEXT = Flag()
NUMBER = Flag(int)
FRACTION = Flag(float)
FLAGS: dict[str, Flag] = {
    "host": Flag(default="0.0.0.0"),
    "port": Flag(int, 8000),
    "api-key": Flag(many=True),
    "served-model-name": Flag(many=True),
    "max-model-len": Flag(human_readable_int_or_auto),
    "max-num-seqs": Flag(int, 128),
    "max-num-batched-tokens": Flag(int, 4096),
    "max-num-queued-reqs": Flag(int, since=(0, 29)),
    "max-num-queued-tokens": Flag(int, since=(0, 29)),
    "num-gpu-blocks-override": NUMBER,
    "block-size": Flag(int, 128),
    "enable-prefix-caching": Flag(None, default=True),
    "max-logprobs": Flag(int, MAX_LOGPROBS),
    "shutdown-timeout": Flag(float, 0.0, since=(0, 18)),
    "sse-keep-alive-interval": Flag(float, 0.0, since=(0, 29)),
    "enable-prompt-tokens-details": SWITCH,
    "enable-force-include-usage": SWITCH,
    "disable-uvicorn-access-log": SWITCH,
    "disable-access-log-for-endpoints": TEXT,
    "scheduling-policy": Flag(default="fcfs"),
    "seed": NUMBER,
    "dtype": TEXT,
    "load-format": TEXT,
    "tokenizer": TEXT,
    "revision": TEXT,
    "download-dir": TEXT,
    "quantization": TEXT,
    "kv-cache-dtype": TEXT,
    "gpu-memory-utilization": FRACTION,
    "tensor-parallel-size": NUMBER,
    "pipeline-parallel-size": NUMBER,
    "data-parallel-size": NUMBER,
    "api-server-count": NUMBER,
    "generation-config": TEXT,
    "chat-template": TEXT,
    "root-path": TEXT,
    "uvicorn-log-level": TEXT,
    "tool-call-parser": TEXT,
    "reasoning-parser": TEXT,
    "enforce-eager": SWITCH,
    "trust-remote-code": SWITCH,
    "enable-chunked-prefill": Flag(None, default=True),
    "enable-auto-tool-choice": SWITCH,
    "enable-request-id-headers": SWITCH,
    "enable-server-load-tracking": SWITCH,
    "disable-log-requests": SWITCH,
    "disable-log-stats": SWITCH,
    "disable-fastapi-docs": SWITCH,
}


def parser(version: Version) -> argparse.ArgumentParser:
    """Return the parser of `vllm serve` as that version has it."""
    serve = argparse.ArgumentParser(prog="vllm serve", usage="vllm serve [model_tag] [options]", add_help=True)
    serve.add_argument("model_tag", nargs="?")
    for name, flag in FLAGS.items():
        if version < flag.since:
            continue
        if flag.kind is None:
            serve.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=flag.default)
        else:
            serve.add_argument(f"--{name}", type=flag.kind, default=flag.default, nargs="+" if flag.many else None)
    return serve


def dashed(word: str) -> str:
    """Return a word with dashes for underscores if it is a flag; vLLM takes both."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def fail(message: str) -> NoReturn:
    """End the start with one sentence."""
    print(f"vllm serve: {message}", file=sys.stderr)
    raise SystemExit(1)


def settings(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[Settings, Faults]:
    """Return what a command line and an environment mean.

    Raises:
        SystemExit: 2 for a bad flag, 1 for a bad model or variable.
    """
    version = environment.get("FAKEVLLM_VERSION", "0.32.0")
    pair = tuple(int(part) for part in version.split(".")[:2])
    serve = parser((pair[0], pair[1]))
    args = serve.parse_args([dashed(word) for word in argv])
    if not args.model_tag:
        serve.error("a model is needed: vllm serve MODEL")
    port = environment.get("VLLM_PORT", "")
    if "://" in port:
        fail(f"VLLM_PORT '{port}' is a URI; a Service called vllm sets it: switch service links off in the pod")
    try:
        tokenizer = Tokenizer.load(Path(args.model_tag))
        faults = Faults.from_text(environment.get("FAKEVLLM_FAULTS", ""))
    except (TokenizerError, FaultError) as error:
        fail(str(error))
    keys = args.api_key or [key for key in [environment.get("VLLM_API_KEY")] if key]
    context = args.max_model_len or BUILT_IN_MODEL_TOKENS
    limits = Limits(
        max_sequences=args.max_num_seqs,
        max_step_tokens=args.max_num_batched_tokens,
        max_model_tokens=context,
        blocks=args.num_gpu_blocks_override or 8192,
        block_size=args.block_size,
        caching=args.enable_prefix_caching,
        priorities=args.scheduling_policy == "priority",
    )
    model = Model(
        names=tuple(args.served_model_name or [args.model_tag]),
        root=args.model_tag,
        max_tokens=context,
        tokenizer=tokenizer,
        max_logprobs=args.max_logprobs,
    )
    clock = Clock(
        float(environment.get("FAKEVLLM_STEP_SECONDS", "0.005")), float(environment.get("FAKEVLLM_TOKEN_SECONDS", "0"))
    )
    chosen = Settings(
        model=model,
        limits=limits,
        clock=clock,
        version=version,
        host=args.host,
        port=args.port,
        api_keys=tuple(keys),
        max_queued_requests=getattr(args, "max_num_queued_reqs", None),
        max_queued_tokens=getattr(args, "max_num_queued_tokens", None),
        shutdown_seconds=getattr(args, "shutdown_timeout", 0.0),
        keep_alive_seconds=getattr(args, "sse_keep_alive_interval", 0.0),
        idle_seconds=int(environment.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5")),
        start_seconds=float(environment.get("FAKEVLLM_START_SECONDS", "0")),
        cached_tokens=args.enable_prompt_tokens_details,
        always_usage=args.enable_force_include_usage,
        access_log=not args.disable_uvicorn_access_log,
    )
    return chosen, faults


def main(argv: Sequence[str] | None = None) -> None:
    """Run `vllm serve`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] != ["serve"]:
        print("usage: vllm serve [model_tag] [options]", file=sys.stderr)
        raise SystemExit(0 if words[:1] in ([], ["--help"], ["-h"]) else 2)
    chosen, faults = settings(words[1:], os.environ)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Process(chosen, faults).run())
