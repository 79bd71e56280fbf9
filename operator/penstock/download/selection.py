"""Which files of a repository an engine needs.

Repositories often hold the same weights several times, for other frameworks or in an older format; downloading all of
them doubles time and space for nothing. What is left out is named here; anything unknown is kept, since a tokenizer or
a piece of model code may have any name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from penstock.download.errors import DownloadError
from penstock.download.listing import RemoteFile
from penstock.download.store import INCOMPLETE, RECORD

OTHER_FRAMEWORKS = frozenset(
    {".gguf", ".ggml", ".h5", ".mlmodel", ".msgpack", ".onnx", ".onnx_data", ".ot", ".pb", ".pdparams", ".tflite"}
)
FOR_PEOPLE = frozenset(
    {".gif", ".jpeg", ".jpg", ".md", ".mp3", ".mp4", ".pdf", ".png", ".svg", ".wav", ".webp", ".gitattributes"}
)
PICKLED = frozenset({".bin", ".pt", ".pth", ".ckpt"})
"""Weights in PyTorch's own format, which counts only where there are no safetensors."""

TRAINING = re.compile(r"(training_args\.bin|(optimizer|scheduler|rng_state[^/]*)\.(bin|pt|pth))$")
COPIES = ("original/", "onnx/", "openvino/", "coreml/")
"""Folders that hold the same model in its maker's or another runtime's format."""

SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
LISTED_NAMES = 5


def select(files: Sequence[RemoteFile], *, file: str | None, where: str) -> tuple[RemoteFile, ...]:
    """Return what to download, by path.

    Args:
        files: All files of the repository.
        file: The one file that is wanted; a part of a split GGUF stands for all its parts. None for a whole model.
        where: How messages name the repository and its revision.

    Raises:
        DownloadError: The repository does not hold what is wanted.
    """
    by_path = {one.path: one for one in files}
    if file is None:
        return tuple(by_path[path] for path in sorted(_whole_model(list(by_path), where)))
    wanted = shards(file)
    missing = [path for path in wanted if path not in by_path]
    if missing:
        raise DownloadError(f"{where} has no file {missing[0]}{_similar(by_path, file)}", permanent=True)
    return tuple(by_path[path] for path in wanted)


def shards(file: str) -> list[str]:
    """Return the paths of all parts of a split GGUF, the first one first; of any other file, the file."""
    match = SHARD.match(file)
    if match is None:
        return [file]
    count = int(match["count"])
    return [f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def _whole_model(paths: list[str], where: str) -> list[str]:
    needed = [path for path in paths if not _is_left_out(path)]
    weights = [path for path in needed if path.endswith(".safetensors")]
    if weights:
        return [path for path in needed if PurePosixPath(path).suffix not in PICKLED]
    if any(PurePosixPath(path).suffix in PICKLED for path in needed):
        return needed
    gguf = next((path for path in sorted(paths) if path.endswith(".gguf")), None)
    advice = f"; write its GGUF file as `file`, such as {gguf}" if gguf else ""
    raise DownloadError(f"{where} has no weights in safetensors or PyTorch format{advice}", permanent=True)


def _is_left_out(path: str) -> bool:
    name = PurePosixPath(path)
    if name.name == RECORD or name.suffix == INCOMPLETE:  # the volume uses these names itself
        return True
    suffix = name.suffix or name.name
    return suffix in OTHER_FRAMEWORKS | FOR_PEOPLE or path.startswith(COPIES) or TRAINING.search(path) is not None


def _similar(paths: dict[str, RemoteFile], file: str) -> str:
    same_kind = sorted(path for path in paths if PurePosixPath(path).suffix == PurePosixPath(file).suffix)
    if not same_kind:
        return ""
    more = f" and {len(same_kind) - LISTED_NAMES} more" if len(same_kind) > LISTED_NAMES else ""
    return f"; it has {', '.join(same_kind[:LISTED_NAMES])}{more}"
