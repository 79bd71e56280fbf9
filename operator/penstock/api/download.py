"""What the download of a model is told when its pod is made: which files, from which hub, into which folder.

The folder's name follows from the request alone, so the pod can name the folder before anything is
downloaded, all replicas look in the same place of a shared claim, and two requests never share a folder.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from pydantic import Field

from penstock.api.environment import EnvironmentSettings, settings_config

PREFIX = "PENSTOCK_DOWNLOAD_"
DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_REVISION = "main"

READABLE_CHARACTERS = 80
DIGEST_CHARACTERS = 8

Text = Annotated[str, Field(min_length=1)]


def folder(*, repository: str, revision: str, file: str | None, endpoint: str) -> str:
    """Return the name of the folder that the request is downloaded into: readable, and unlike that of any other."""
    request = "\n".join((endpoint, repository, revision, file or ""))
    readable = re.sub(r"[^A-Za-z0-9.-]+", "--", repository).strip(".-")[:READABLE_CHARACTERS]
    return f"{readable or 'model'}-{hashlib.sha256(request.encode()).hexdigest()[:DIGEST_CHARACTERS]}"


class DownloadSettings(EnvironmentSettings):
    """The settings of one download, shared by all replicas of one revision."""

    model_config = settings_config(PREFIX)

    repository: Annotated[str, Field(pattern=r"^[^/\s]+(/[^/\s]+)?$")]
    """the repository, such as Qwen/Qwen2.5-7B-Instruct"""

    revision: Text = DEFAULT_REVISION
    """the branch, tag or commit"""

    file: Text | None = None
    """the one file that is wanted, such as model-q8_0.gguf; leave it out for all that an engine needs"""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] = DEFAULT_ENDPOINT
    """the address of the hub, such as https://huggingface.co"""

    token_path: Text | None = None
    """the path of the file that holds the hub's access token; leave it out to ask without one"""

    volume: Text
    """the folder where the volume is mounted"""

    folder: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    """the name of the model's folder in the volume"""
