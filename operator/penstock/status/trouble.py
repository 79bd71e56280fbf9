"""What keeps a backend from being ready, as one reason and one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.api.conditions import Reason


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A cause that a user can understand and act on.

    Attributes:
        reason: The cause in one word.
        message: The cause in a sentence, with the cluster's own words where they help.
        stalled: Whether only a change, by the user or to the cluster, can end it; else it may pass by itself.
    """

    reason: Reason
    message: str
    stalled: bool = False
