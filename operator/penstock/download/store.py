"""The volume: where a model lies when it is complete, and where while it is not.

    <volume>/<folder>/                      the model, for the engine; appears by one rename
    <volume>/<folder>/.penstock.json        which commit it is, and every file with its size
    <volume>/.penstock/<folder>.partial/    the same, while it is downloaded; `*.incomplete` is not checked yet
    <volume>/.penstock/<folder>.lock        held by the one that downloads

A folder whose files do not match its own record (somebody removed or cut one) goes back to where it is downloaded, and
what is still right in it is kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.download.listing import RemoteFile

RECORD = ".penstock.json"
WORK = ".penstock"
INCOMPLETE = ".incomplete"
FOLDER_MODE = 0o775


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a complete folder holds.

    Attributes:
        repository: The repository it comes from.
        revision: The revision that was asked for.
        commit: The commit that the revision stood for.
        sizes: Size in bytes by path.
    """

    repository: str
    revision: str
    commit: str
    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(self.sizes.values())


class Store:
    """One model's place in the volume."""

    def __init__(self, volume: Path, folder: str) -> None:
        self.published = volume / folder
        self.staging = volume / WORK / f"{folder}.partial"
        self.lock_path = volume / WORK / f"{folder}.lock"

    def prepare(self) -> None:
        """Make the folder for work in progress.

        Raises:
            OSError: The volume cannot be written to.
        """
        self.lock_path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)

    def complete(self) -> Record | None:
        """Return the record of the published model; None when there is none or a file is not as recorded."""
        try:
            record = Record(**json.loads((self.published / RECORD).read_text()))
            sizes = {path: (self.published / path).stat().st_size for path in record.sizes}
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None
        return record if sizes == record.sizes else None

    def begin(self) -> bool:
        """Make the staging folder; return whether a published model was damaged and has been taken back."""
        damaged = self.published.exists()
        if damaged and self.staging.exists():
            shutil.rmtree(self.published)
        elif damaged:
            self.published.rename(self.staging)
            (self.staging / RECORD).unlink(missing_ok=True)
            for path in [path for path in self.staging.rglob("*") if path.is_file()]:
                path.rename(path.with_name(path.name + INCOMPLETE))  # to be checked again
        self.staging.mkdir(mode=FOLDER_MODE, exist_ok=True)
        return damaged

    def keep_only(self, files: Sequence[RemoteFile]) -> None:
        """Remove what an earlier commit of the same request has left in the staging folder."""
        wanted = {self.staging / file.path for file in files}
        wanted |= {self.incomplete(file) for file in files}
        for path in [path for path in self.staging.rglob("*") if path.is_file()]:
            if path not in wanted:
                path.unlink()

    def incomplete(self, file: RemoteFile) -> Path:
        """Return where a file is written while it comes in."""
        return self.staging / (file.path + INCOMPLETE)

    def has(self, file: RemoteFile) -> bool:
        """Tell whether a file has been downloaded and checked."""
        path = self.staging / file.path
        return path.is_file() and path.stat().st_size == file.size

    def accept(self, file: RemoteFile) -> None:
        """Take a file as checked; it is on the disk before its name says so."""
        _flush(self.incomplete(file))
        self.incomplete(file).replace(self.staging / file.path)

    def missing_bytes(self, files: Sequence[RemoteFile]) -> int:
        """Return how much is still to be written."""
        return sum(file.size - self.present_bytes(file) for file in files)

    def present_bytes(self, file: RemoteFile) -> int:
        """Return how much of a file is there, checked or not."""
        for path in (self.staging / file.path, self.incomplete(file)):
            if path.is_file():
                return min(path.stat().st_size, file.size)
        return 0

    def free_bytes(self) -> int:
        """Return how much the volume can still take."""
        return shutil.disk_usage(self.staging).free

    def publish(self, record: Record) -> None:
        """Make the model visible to the engine, at once and for good.

        Raises:
            OSError: The volume refuses; nothing is visible then.
        """
        path = self.staging / RECORD
        path.write_text(json.dumps(asdict(record)))
        _flush(path)
        self.staging.rename(self.published)
        _flush(self.published.parent)


def _flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
