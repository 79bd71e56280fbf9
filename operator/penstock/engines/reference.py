"""The reference page of the engines: what they run as, what clients may call, which arguments are Penstock's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.engines import llamacpp, vllm, vllm_owned
from penstock.engines.arguments import Owned
from penstock.engines.facts import EngineFacts, RequestClass
from penstock.engines.version import EngineVersion

_HEAD = """# Engines

What Penstock knows about each engine. Everything here is data in `operator/penstock/engines`; this page is generated
from it by `python scripts/generate.py`.

An engine's version is `spec.engine.version` if given, else what the image's tag says. An engine whose version is not
known gets only arguments that every supported version takes.
"""


def page() -> str:
    """Return the page as Markdown."""
    oldest_vllm, oldest_llama_cpp = EngineVersion(vllm.OLDEST_RELEASE), EngineVersion((llamacpp.OLDEST_BUILD,))
    return "\n".join(
        (
            _HEAD,
            _engine("vLLM", vllm.FACTS, oldest=str(oldest_vllm)),
            _refused(vllm_owned.OWNED, vllm_owned.OWNED_ENVIRONMENT),
            _engine("llama.cpp", llamacpp.FACTS, oldest=str(oldest_llama_cpp)),
            _refused(
                llamacpp.OWNED,
                {
                    **{f"{prefix}*": text for prefix, text in llamacpp.OWNED_ENVIRONMENT_PREFIXES.items()},
                    **llamacpp.OWNED_ENVIRONMENT,
                },
            ),
        )
    )


def _engine(name: str, facts: EngineFacts, *, oldest: str) -> str:
    images = {"": facts.default_image, **facts.gpu_images}
    lines = [
        f"## {name}",
        "",
        f"- `spec.engine.type: {facts.type}`; oldest supported version: {oldest}",
        *(f"- image{f' with GPUs of {vendor}' if vendor else ''}: `{image}`" for vendor, image in images.items()),
        f"- runs as user {facts.user_id}, group {facts.group_id}, with a read-only root file system",
        "",
        "Clients may call these paths; all others are answered with 404.",
        "",
        "| counted and limited | passed on at once |",
        "|---|---|",
    ]
    columns = [
        "<br>".join(f"`{path}`" for path, kind in sorted(facts.allowed_paths.items()) if kind is wanted)
        for wanted in (RequestClass.GENERATION, RequestClass.READ)
    ]
    return "\n".join([*lines, f"| {columns[0]} | {columns[1]} |"]) + "\n"


def _refused(owned: Iterable[Owned], variables: Mapping[str, str]) -> str:
    rows = [(" ".join(f"`{flag}`" for flag in entry.flags), entry.instead) for entry in owned]
    rows += [(f"`{name}`", text) for name, text in variables.items()]
    lines = ["Refused in `spec.engine.args` and `spec.engine.env`:", "", "| written | do this instead |", "|---|---|"]
    return "\n".join([*lines, *(f"| {written} | {instead} |" for written, instead in rows)]) + "\n"
