"""A small Hugging Face hub: what a download asks of one, answered as the real one answers.

    with Hub([Repository("acme/tiny", files={"model.gguf": path})]) as hub:
        hub.url                               # an `endpoint`
        hub.downloads("acme/tiny", "model.gguf")

Repositories have commits and branches, may be private or gated, and keep large files with LFS: their bytes come from a
second listener, by a signed redirect, as from the hub's storage host. `Faults` makes it slow, broken or rude.
"""

from __future__ import annotations

from e2e.hub.faults import Faults
from e2e.hub.repository import File, Repository
from e2e.hub.server import Hub

__all__ = ["Faults", "File", "Hub", "Repository"]
