"""The permit: the right of one request to be at the engine, returned exactly once.

    state    | first_byte                      | finish, cancel
    ---------|---------------------------------|---------------------------------------------
    prefill  | -> decode, tokens given back    | -> returned, tokens and requests given back
    decode   | nothing                         | -> returned, requests given back
    returned | nothing                         | PermitError

No timer ever returns a permit: only the end of the request does. A gate that frees places by the clock sees room that
the engine does not have.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.admission.ask import Waiting
    from penstock.admission.shed import Shed


class Outcome(StrEnum):
    """What a finished request says about the engine's capacity."""

    SUCCESS = "success"
    """Served: its latency is a sample."""

    IGNORE = "ignore"
    """Ended for a reason that has nothing to do with load."""

    DROPPED = "dropped"
    """The engine shed it or failed under it: a sign of overload."""

    __hash__ = str.__hash__  # every request counts its outcome; the hash of Enum is a Python function


class PermitError(RuntimeError):
    """A permit was returned twice, or a place in the queue left twice: a defect of the limiter, never of a client."""


class Issuer(Protocol):
    """Who gave a permit and takes it back."""

    def end_prefill(self, permit: Permit, now: float) -> None:
        """Take back the prefill tokens of a permit."""

    def take_back(self, permit: Permit, outcome: Outcome | None, now: float) -> None:
        """Take back a permit; no outcome means that it was cancelled."""


class Permit:
    """The right of one request to be at the engine.

    What may follow from giving something back (others go ahead) is collected by `Gate.advance`.

    Attributes:
        band: Index of its priority band in the bands in force.
        requests: How many requests of the engine it stands for: one per choice.
        prefill_tokens: Prompt tokens that the engine has not worked off yet; 0 after the first byte.
        counts: Whether it counts against the limits. The issuer says so, unless it was let through though it should
            wait or be refused.
        would: What would have happened to it if the gate had enforced its decision; None when it was admitted.
    """

    __slots__ = ("_issuer", "band", "counts", "prefill_tokens", "requests", "would")

    def __init__(
        self,
        issuer: Issuer,
        *,
        band: int,
        requests: int,
        prefill_tokens: int,
        would: Waiting | Shed | None = None,
    ) -> None:
        self._issuer: Issuer | None = issuer
        self.band = band
        self.requests = requests
        self.prefill_tokens = prefill_tokens
        self.counts = False
        self.would = would

    def first_byte(self, now: float) -> None:
        """Give the prefill tokens back: the engine has answered, so the prompt is worked off. Once is enough."""
        if self._issuer is not None and self.prefill_tokens:
            self._issuer.end_prefill(self, now)

    def finish(self, outcome: Outcome, now: float) -> None:
        """Return the permit of a request that the engine ended.

        Raises:
            PermitError: it was returned before.
        """
        self._return(outcome, now)

    def cancel(self, now: float) -> None:
        """Return the permit of a request that ended before the engine ended it.

        Raises:
            PermitError: it was returned before.
        """
        self._return(None, now)

    def _return(self, outcome: Outcome | None, now: float) -> None:
        issuer, self._issuer = self._issuer, None
        if issuer is None:
            raise PermitError("a permit was returned twice")
        issuer.take_back(self, outcome, now)
