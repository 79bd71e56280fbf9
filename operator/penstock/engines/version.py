"""Engine versions, read from what the user declares or from an image's tag.

A flag that an engine does not know stops its start, so a version is only believed when it is certain: tags of images
that are not the engine's own, pre-releases and hashes give None, and the engine then gets only flags that every
supported version has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

VLLM_TAG = re.compile(r"(?:^|[-_])v?(0\.\d{1,3}(?:\.\d{1,3})?)(?:\.post\d+)?(?=$|[-_+])")
VLLM_DECLARED = re.compile(r"v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?:\.post\d+)?(?:\+[\w.]+)?")
LLAMA_CPP_TAG = re.compile(r"(?:^|-)b(\d{3,6})(?=$|-)")
LLAMA_CPP_DECLARED = re.compile(r"b?(\d{3,6})")


@dataclass(frozen=True, order=True)
class EngineVersion:
    """A version that can be compared: `(0, 18, 0)` for vLLM 0.18.0, `(11434,)` for llama.cpp b11434."""

    parts: tuple[int, ...]

    def at_least(self, *parts: int) -> bool:
        """Tell whether this version is the given one or later."""
        return self.parts >= parts

    def __str__(self) -> str:
        return f"b{self.parts[0]}" if len(self.parts) == 1 else ".".join(map(str, self.parts))


def at_least(version: EngineVersion | None, *parts: int) -> bool:
    """Tell whether a version is known and the given one or later."""
    return version is not None and version.at_least(*parts)


def parse_vllm(text: str) -> EngineVersion | None:
    """Read a declared vLLM version such as `0.18.0`, `v0.18` or `0.8.5.post1`; None when it is no release."""
    return _vllm(VLLM_DECLARED.fullmatch(text))


def parse_llama_cpp(text: str) -> EngineVersion | None:
    """Read a declared llama.cpp build such as `b11434` or `11434`; None when it is none."""
    return _llama_cpp(LLAMA_CPP_DECLARED.fullmatch(text))


def vllm_of_image(image: str) -> EngineVersion | None:
    """Read the vLLM version from an image's tag.

    Only images with `vllm` in their name are believed, and only versions 0.x: vendors tag their builds with versions
    of their own.
    """
    repository, tag = split_image(image)
    return _vllm(VLLM_TAG.search(tag)) if "vllm" in repository.lower() else None


def llama_cpp_of_image(image: str) -> EngineVersion | None:
    """Read the llama.cpp build from an image's tag, such as `server-cuda-b11434`."""
    return _llama_cpp(LLAMA_CPP_TAG.search(split_image(image)[1]))


def split_image(image: str) -> tuple[str, str]:
    """Return an image's repository and tag; the tag is empty when there is none, and a digest is left out."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    return folder + slash + repository, tag


def _vllm(match: re.Match[str] | None) -> EngineVersion | None:
    if match is None:
        return None
    numbers = [int(number) for number in match[1].split(".")]
    return EngineVersion((*numbers, 0)[:3])


def _llama_cpp(match: re.Match[str] | None) -> EngineVersion | None:
    return None if match is None else EngineVersion((int(match[1]),))
