"""How a download fails: one sentence for people, and whether trying again can help."""

from __future__ import annotations

from penstock.api.errors import PenstockError


class DownloadError(PenstockError):
    """The model is not there; the text says why and what to do, in one line.

    Attributes:
        permanent: Only a change, of the spec, the token or the volume, can help.
        retry_after_seconds: How long the hub asks to wait before the next try.
        damaged: What arrived is not what the hub names.
    """

    def __init__(
        self, message: str, *, permanent: bool = False, retry_after_seconds: float = 0.0, damaged: bool = False
    ) -> None:
        self.permanent = permanent
        self.retry_after_seconds = retry_after_seconds
        self.damaged = damaged
        super().__init__(" ".join(message.split()))
