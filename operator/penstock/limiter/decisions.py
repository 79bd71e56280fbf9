"""What is done with the decision to refuse a request: it is always counted, and carried out in one mode only.

| mode | counted | the request |
|---|---|---|
| `Enforce` | yes | is refused |
| `Shadow` | yes | goes on, and counts against no limit |
| `Disabled` | nothing is decided | goes on |

So the counters of a shadow tell what enforcing would do. The gate keeps its own.
"""

from __future__ import annotations

from collections import Counter

from penstock.admission.shed import Shed
from penstock.api.admission import AdmissionMode
from penstock.limiter.refusal import Refused
from penstock.limiter.visit import Visit


class Decisions:
    """See the module's docstring.

    Attributes:
        mode: What the policy says.
        enforced: Whether refusals are carried out.
        disabled: Whether nothing is decided.
        shed: Requests to be refused before they come to the gate, by class name and why.
    """

    def __init__(self, mode: AdmissionMode) -> None:
        self.follow(mode)
        self.shed: Counter[tuple[str, Shed]] = Counter()

    def follow(self, mode: AdmissionMode) -> None:
        """Take over what the policy says."""
        self.mode = mode
        self.enforced = mode is AdmissionMode.ENFORCE
        self.disabled = mode is AdmissionMode.DISABLED

    def refuse(self, band: str, shed: Shed, refused: Refused) -> None:
        """Count a refusal.

        Raises:
            Refused: it is carried out.
        """
        self.shed[band, shed] += 1
        if self.enforced:
            raise refused

    def refuse_visit(self, visit: Visit, shed: Shed, refused: Refused) -> None:
        """Count the refusal of a visit, and mark it; see `refuse`."""
        visit.would = shed
        self.refuse(visit.band, shed, refused)
