"""What a shared store was charged for one request, and how that is put right; see `reservation`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.admission.question import Settlement, SharedCharge
from penstock.admission.reservation import Reservation, ReservationError


class SharedReservation:
    """What a store has charged for one request, and the replica's own quotas beside it; closed exactly once.

    Attributes:
        delay_seconds: How much later to start the request.
        view: What is left of the shared quotas.
    """

    __slots__ = ("_charge", "_own", "_post", "delay_seconds", "view")

    def __init__(self, charge: SharedCharge, own: Reservation, *, post: Callable[[Settlement], None]) -> None:
        """Hold both; `post` tells the store something, now or when it is back."""
        self.delay_seconds = max(charge.delay_seconds, own.delay_seconds)
        self.view = charge.view
        self._charge: SharedCharge | None = charge
        self._own = own
        self._post = post

    def settle(self, prompt_tokens: int, output_tokens: int, *, now: float) -> None:
        """See `Reservation`."""
        self._tell(self._closed().settlement(prompt_tokens, output_tokens))
        self._own.settle(prompt_tokens, output_tokens, now=now)

    def cancel(self, now: float) -> None:
        """See `Reservation`."""
        self._tell(self._closed().cancellation())
        self._own.cancel(now)

    def _closed(self) -> SharedCharge:
        charge, self._charge = self._charge, None
        if charge is None:
            raise ReservationError("a reservation was settled or cancelled twice")
        return charge

    def _tell(self, settlement: Settlement | None) -> None:
        if settlement is not None:
            self._post(settlement)
