"""Container images as files: deterministic layers, and the docker-archive format that `ctr images import` reads.

A layer is a plain tar with sorted entries, one fixed modification time and no user names, so the same files give the
same bytes and the same digest, and nodes recognise a layer they already have. Images that only add files to the base
are written here directly, without a container engine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import tarfile
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

# 2000-01-01: ZIP files, and so Python wheels, cannot hold anything before 1980.
MODIFIED_SECONDS = 946684800
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Image:
    """A built image: the name that pods use, and the docker-archive tar that brings it to a node."""

    reference: str
    archive: Path


@dataclass(frozen=True)
class Config:
    """What a container of the image runs when the pod says nothing else."""

    entrypoint: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    user: str = ""


@dataclass(frozen=True)
class Sizes:
    """An image's size in bytes: what a node downloads (each layer gzipped) and what it takes on its disk."""

    compressed: int
    unpacked: int


def architecture() -> str:
    """Return this machine's architecture as images and Debian name it: `amd64`, `arm64`."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def write_layer(layer: Path, contents: Mapping[str, Path], *, keep_owners: bool = False) -> None:
    """Write the tar of a layer.

    Args:
        layer: The tar to write.
        contents: Absolute path in the image to the file or folder it is taken from; `/` is the root. Missing parent
            folders appear with mode 0755.
        keep_owners: The files are a root file system: owners (as numbers) and modes are kept, compiled Python files
            too. By default all belongs to root, a file is 0755 when its owner may execute it, else 0644, and
            `__pycache__` is left out: one modification time for all would make its contents stale.
    """
    left_out = () if keep_owners else ("__pycache__",)
    entries: dict[str, Path | None] = {}
    for target, source in contents.items():
        name = target.strip("/")
        for parent in list(Path(name).parents)[:-1]:
            entries.setdefault(str(parent), None)
        entries |= {str(Path(name, relative)): path for relative, path in _walk(source, left_out)}
    entries.pop(".", None)
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(entries):
            _add(tar, name, entries[name], keep_owners=keep_owners)


def _walk(source: Path, left_out: Container[str]) -> Iterator[tuple[str, Path]]:
    yield ".", source
    if source.is_dir() and not source.is_symlink():
        for folder, folders, files in os.walk(source):
            folders[:] = [name for name in folders if name not in left_out]
            for name in folders + files:
                path = Path(folder, name)
                yield str(path.relative_to(source)), path


def _add(tar: tarfile.TarFile, name: str, source: Path | None, *, keep_owners: bool) -> None:
    if source is None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    else:
        entry = tar.gettarinfo(source, name)
    entry.mtime = MODIFIED_SECONDS
    entry.uname = entry.gname = ""
    if not keep_owners:
        entry.uid = entry.gid = 0
        if not entry.issym():
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    if entry.isreg() and source is not None:
        with source.open("rb") as file:
            tar.addfile(entry, file)
    else:
        tar.addfile(entry)


def write_archive(archive: Path, reference: str, layers: Sequence[Path], config: Config) -> Image:
    """Write a docker-archive tar of these layers, the base first, and return the image."""
    diff_ids = [sha256(layer) for layer in layers]
    document = {
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": list(config.entrypoint),
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "WorkingDir": config.working_directory,
            "User": config.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}" for diff_id in diff_ids]},
        "history": [{"created_by": reference} for _ in layers],
    }
    blob = json.dumps(document, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(blob).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": [f"{diff_id}.tar" for diff_id in diff_ids]}]
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())
        _add_bytes(tar, config_name, blob)
        for diff_id, layer in zip(diff_ids, layers, strict=True):
            entry = tarfile.TarInfo(f"{diff_id}.tar")
            entry.size, entry.mtime = layer.stat().st_size, MODIFIED_SECONDS
            with layer.open("rb") as file:
                tar.addfile(entry, file)
    return Image(reference=reference, archive=archive)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(content), MODIFIED_SECONDS
    tar.addfile(entry, io.BytesIO(content))


def sizes(archive: Path) -> Sizes:
    """Return the sizes of an archive's image; compressing every layer to measure it takes a second per 20 MB."""
    compressed = unpacked = 0
    with tarfile.open(archive) as tar:
        for name in json.load(member(tar, "manifest.json"))[0]["Layers"]:
            counter = _Counter()
            with gzip.GzipFile(fileobj=counter, mode="wb", compresslevel=6, mtime=0) as packed:
                shutil.copyfileobj(member(tar, name), packed, COPY_BYTES)
            compressed += counter.count
            with tarfile.open(fileobj=member(tar, name)) as layer:
                unpacked += sum(entry.size for entry in layer if entry.isreg())
    return Sizes(compressed=compressed, unpacked=unpacked)


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Return a file of an archive, open for reading."""
    file = tar.extractfile(name)
    if file is None:
        raise tarfile.ReadError(f"{name} is not a file in the archive")
    return file


class _Counter(io.RawIOBase):
    """A sink that keeps only the number of bytes written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        size = memoryview(data).nbytes  # type: ignore[arg-type]
        self.count += size
        return size
