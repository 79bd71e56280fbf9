"""One request's question to the shared store, from the moment it is sent until it is answered.

    event              | what happens
    -------------------|-----------------------------------------------------------------------
    answered, in time  | whoever waits is told: charged, refused, or that the store does not say
    out of time        | whoever waits is told that the store does not say
    cancelled          | nobody is told: the client has left, or everybody was sent away
    answered after that| what was charged is given back

The replica's own quotas were charged before it was sent, and stay charged until the request is over. So it stands in
the place of a `Reservation` while the request waits: to cancel it is right whatever the store says later.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.admission.question import Question, SharedCharge
from penstock.admission.quotaview import QuotaRefusal
from penstock.admission.reservation import Reservation

Found = SharedCharge | QuotaRefusal | None
"""What the store says; None when it does not say anything in time."""


class Asking:
    """See the module's docstring.

    Attributes:
        question: What is asked.
        own: What the replica's own quotas were charged.
        asked_at: When.
        delay_seconds: 0: nothing is known yet.
    """

    __slots__ = ("_then", "asked_at", "delay_seconds", "own", "question")

    def __init__(self, question: Question, own: Reservation, *, asked_at: float) -> None:
        self.question = question
        self.own = own
        self.asked_at = asked_at
        self.delay_seconds = 0.0
        self._then: Callable[[Found], None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for the answer."""
        return self._then is not None

    def await_answer(self, then: Callable[[Found], None]) -> None:
        """Say who waits."""
        self._then = then

    def tell(self, found: Found) -> None:
        """Tell whoever waits, once."""
        then, self._then = self._then, None
        if then is not None:
            then(found)

    def settle(self, prompt_tokens: int, output_tokens: int, *, now: float) -> None:
        """Never called: a request that waits for the store is not at the engine.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"settled before it was charged: {prompt_tokens}, {output_tokens}, {now}")

    def cancel(self, now: float) -> None:
        """Nobody waits any more; give back what was charged here."""
        self._then = None
        self.own.cancel(now)
