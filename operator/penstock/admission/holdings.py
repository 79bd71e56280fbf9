"""What of the limits is taken: the permits that are out, and what those that count hold."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.admission.permit import Permit


class Holdings:
    """Permits that are out, and what they hold of the limits.

    Attributes:
        permits: All that are out.
        by_band: The requests that count against the limits, by band.
        prefill_backlog: Prompt tokens in work, of permits that count.
    """

    __slots__ = ("by_band", "permits", "prefill_backlog")

    def __init__(self, bands: int) -> None:
        self.permits: set[Permit] = set()
        self.by_band = [0] * bands
        self.prefill_backlog = 0

    def count(self, permit: Permit) -> None:
        """Let a permit count against the limits from now on."""
        permit.counts = True
        self.by_band[permit.band] += permit.requests
        self.prefill_backlog += permit.prefill_tokens

    def take_back(self, permit: Permit) -> None:
        """A permit is not out any more."""
        self.permits.remove(permit)
        if permit.counts:
            self.by_band[permit.band] -= permit.requests
            self.prefill_backlog -= permit.prefill_tokens

    def end_prefill(self, permit: Permit) -> None:
        """The prompt of a permit has been worked off."""
        if permit.counts:
            self.prefill_backlog -= permit.prefill_tokens

    def rebase(self, index: Sequence[int], bands: int) -> None:
        """Put new bands in force: `index` is by old band the new one."""
        self.by_band = [0] * bands
        for permit in self.permits:
            permit.band = index[permit.band]
            if permit.counts:
                self.by_band[permit.band] += permit.requests
