"""A repository at one commit: its files with sizes and checksums, and who may read it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

LFS_SUFFIXES = (".bin", ".gguf", ".onnx", ".pth", ".safetensors")
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class File:
    """One file, from memory or from disk."""

    source: bytes | Path

    @cached_property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for start in range(0, self.size, BLOCK_BYTES):
            digest.update(self.read(start, BLOCK_BYTES))
        return digest.hexdigest()

    @cached_property
    def git_sha1(self) -> str:
        header = b"blob %d\0" % self.size
        return hashlib.sha1(header + self.read(0, self.size), usedforsecurity=False).hexdigest()

    def read(self, start: int, count: int) -> bytes:
        if isinstance(self.source, bytes):
            return self.source[start : start + count]
        with self.source.open("rb") as file:
            file.seek(start)
            return file.read(count)


@dataclass(frozen=True)
class Repository:
    """One repository.

    Attributes:
        name: `owner/name`.
        contents: Contents by path, or a folder whose files they are.
        branches: What names the one commit, besides its hash.
        tokens: Who may read it; empty for everybody.
        gated: Everybody sees it, only `tokens` may read its files.
    """

    name: str
    contents: Mapping[str, bytes | Path] | Path
    branches: tuple[str, ...] = ("main",)
    tokens: tuple[str, ...] = ()
    gated: bool = False

    @cached_property
    def files(self) -> dict[str, File]:
        if isinstance(self.contents, Path):
            root = self.contents
            return {str(path.relative_to(root)): File(path) for path in sorted(root.rglob("*")) if path.is_file()}
        return {path: File(source) for path, source in sorted(self.contents.items())}

    @cached_property
    def commit(self) -> str:
        state = "".join(f"{path} {file.sha256}\n" for path, file in self.files.items())
        return hashlib.sha1((self.name + state).encode(), usedforsecurity=False).hexdigest()

    def knows(self, revision: str) -> bool:
        return revision in (*self.branches, self.commit)

    def is_lfs(self, path: str) -> bool:
        return path.endswith(LFS_SUFFIXES)

    def description(self) -> dict[str, Any]:
        """Return what `/api/models/<name>?blobs=true` answers, as far as clients read it."""
        siblings = []
        for path, file in self.files.items():
            sibling: dict[str, Any] = {"rfilename": path, "size": file.size, "blobId": file.git_sha1}
            if self.is_lfs(path):
                sibling["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
            siblings.append(sibling)
        return {
            "_id": self.commit[:24],
            "id": self.name,
            "modelId": self.name,
            "sha": self.commit,
            "private": bool(self.tokens) and not self.gated,
            "gated": "manual" if self.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings,
        }
