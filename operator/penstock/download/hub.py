"""The hub, through its own library: what a repository holds, and the bytes of one file.

Of `huggingface_hub` this uses the repository's description (with the checksum of every file) and its HTTP download,
which goes on at an offset. The library's own way to fetch whole files starts anew after every end of its process and
checks sizes only, so resuming, checking and publishing are Penstock's.

The token goes to the hub alone: the HTTP client drops it when the hub redirects to a storage host.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event
from typing import BinaryIO, cast

from huggingface_hub import HfApi, ModelInfo, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HFValidationError
from huggingface_hub.file_download import http_get, xet_get
from huggingface_hub.utils.tqdm import disable_progress_bars

from penstock.download.errors import DownloadError
from penstock.download.listing import Listing, RemoteFile, is_safe
from penstock.download.progress import Progress

ANSWER_SECONDS = 30.0
CLIENT = "penstock"

# Its progress bars are no lines, and its warnings quote addresses that carry signatures.
disable_progress_bars()
logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


class Stopped(Exception):  # noqa: N818 - not an error of its own: another file of the same download has failed
    """The download has ended for another reason."""


class Hub:
    """One hub, asked with one token or none."""

    def __init__(self, *, endpoint: str, token: str | None) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._token: str | bool = token or False  # False: no token from anywhere else either
        self._api = HfApi(endpoint=self.endpoint, token=self._token, library_name=CLIENT)

    def listing(self, repository: str, revision: str) -> Listing:
        """Return the repository at the commit that the revision stands for now.

        Raises:
            DownloadError: The hub does not tell what a safe download needs.
            Exception: What the library and its HTTP client raise; `failures.explain` knows it.
        """
        found = self._describe(repository, revision)
        files = []
        for sibling in found.siblings or ():
            if sibling.size is None or not (sibling.lfs or sibling.blob_id):
                raise DownloadError(
                    f"{self.endpoint} names no checksum for {sibling.rfilename}: it is no full Hugging Face hub",
                    permanent=True,
                )
            if not is_safe(sibling.rfilename):
                raise DownloadError(
                    f"{repository} holds a file outside its own folder: {sibling.rfilename!r}", permanent=True
                )
            files.append(
                RemoteFile(
                    path=sibling.rfilename,
                    size=sibling.size,
                    sha256=sibling.lfs.sha256 if sibling.lfs else None,
                    git_sha1=sibling.blob_id or "",
                )
            )
        if not found.sha:
            raise DownloadError(
                f"{self.endpoint} names no commit for {repository}: it is no full Hugging Face hub", permanent=True
            )
        return Listing(commit=found.sha, files=tuple(files))

    def _describe(self, repository: str, revision: str) -> ModelInfo:
        try:
            return self._api.model_info(repository, revision=revision, files_metadata=True, timeout=ANSWER_SECONDS)
        except HFValidationError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # how the library takes what it cannot read
            raise DownloadError(
                f"{self.endpoint} does not answer as a Hugging Face hub does", permanent=True
            ) from error

    def fetch(
        self, repository: str, commit: str, file: RemoteFile, *, into: Path, progress: Progress, stop: Event
    ) -> None:
        """Write the file, or what is still missing of it.

        Raises:
            Stopped: `stop` has been set.
            Exception: What the library, its HTTP client and the volume raise; `failures.explain` knows it.
        """
        url = hf_hub_url(repository, file.path, revision=commit, endpoint=self.endpoint)
        # Offsets count bytes of the file, so it may not come compressed.
        headers = {"User-Agent": CLIENT, "Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
            self._fetch_large(url, headers, file, into)
            return
        with into.open("r+b" if into.exists() else "w+b") as target:
            present = target.seek(0, 2)
            counted = cast("BinaryIO", _Counted(target, progress, stop))
            http_get(url, counted, resume_size=present, headers=headers, expected_size=file.size)

    def _fetch_large(self, url: str, headers: dict[str, str], file: RemoteFile, into: Path) -> None:
        """Fetch a file that the hub sends in chunks only; an interrupted one starts anew."""
        xet = get_hf_file_metadata(url, token=self._token, endpoint=self.endpoint, timeout=ANSWER_SECONDS).xet_file_data
        if xet is None:
            raise DownloadError(
                f"{file.path} is larger than the 50 GB that {self.endpoint} sends in one piece; choose a split file",
                permanent=True,
            )
        xet_get(incomplete_path=into, xet_file_data=xet, headers=headers, expected_size=file.size)


class _Counted:
    """A file that counts what is written to it, and refuses more when the download has ended."""

    def __init__(self, file: BinaryIO, progress: Progress, stop: Event) -> None:
        self._file = file
        self._progress = progress
        self._stop = stop

    def write(self, data: bytes) -> int:
        if self._stop.is_set():
            raise Stopped
        count = self._file.write(data)
        self._progress.add(count)
        return count

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def truncate(self) -> int:
        """Take back what follows the position: the hub sends the file from its start."""
        position = self._file.tell()
        self._progress.add(position - self._file.seek(0, 2))
        self._file.seek(position)
        return self._file.truncate()
