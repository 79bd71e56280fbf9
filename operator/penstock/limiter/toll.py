"""What a request pays before it goes on: the quotas' part of admission, wherever they are counted.

    pay        charges the quotas that are counted here, or asks the shared store     the visit holds which of both
    conclude   takes the store's answer over; without one, charges here

The file with the store's URL wins over the policy, whose URL holds no password.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from penstock.admission.connected import Connected
from penstock.admission.question import Keys
from penstock.admission.shed import Shed
from penstock.api.admission import NORMAL
from penstock.api.policy import Policy
from penstock.limiter.asking import Found
from penstock.limiter.charges import Charges
from penstock.limiter.decisions import Decisions
from penstock.limiter.refusal import Reason, Refused
from penstock.limiter.sharedstore import SharedStore
from penstock.limiter.storeurl import StoreUrl, UrlError, UrlFile
from penstock.limiter.visit import Visit

logger = logging.getLogger(__name__)

_SHED = {Reason.RATE_LIMIT_EXCEEDED: Shed.QUOTA, Reason.NEVER_FITS: Shed.NEVER_FITS}


class Toll:
    """See the module's docstring.

    Attributes:
        charges, store: The parts.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        backend_uid: str,
        store_url_path: str | None,
        decisions: Decisions,
    ) -> None:
        """Begin without quotas.

        Args:
            loop: Where the store is asked; its clock is that of all quotas counted here.
            backend_uid: Whose quotas they are, among all backends that use a store.
            store_url_path: File with the store's URL.
            decisions: What is done with refusals.
        """
        self._loop = loop
        self._decisions = decisions
        self._problem: str | None = None
        self._file = UrlFile(Path(store_url_path)) if store_url_path else None
        self.store = SharedStore(loop)
        self.charges = Charges(now=loop.time(), store=self.store, keys=Keys(backend_uid))

    def configure(self, policy: Policy) -> None:
        """Put a policy in force."""
        self.charges.configure(policy, now=self._loop.time())
        if self._file is None:
            self.store.use(self._url_of(policy))

    def refresh(self) -> None:
        """Read the store's URL again if its file has changed."""
        if self._file is not None and self._file.refresh():
            self.store.use(self._file.url)

    def pay(self, visit: Visit, now: float, *, here: bool = False) -> None:
        """Charge the quotas, or ask the store, unless all is to be counted `here`.

        Raises:
            Refused: one refuses.
        """
        if visit.would is not None:
            return
        charge = self.charges.charge_here if here or self.store.url is None else self.charges.charge
        try:
            visit.reservation = charge(
                visit.caller, visit.estimate, patience_seconds=visit.deadline - now, dialect=visit.dialect, now=now
            )
        except Refused as refused:
            self._decisions.refuse_visit(visit, _SHED[refused.reason], refused)

    def conclude(self, visit: Visit, found: Found) -> None:
        """Take the store's answer over, or charge here when it has none.

        Raises:
            Refused: a quota refuses.
        """
        asking, visit.reservation = visit.asking, None
        if asking is None:
            return
        now = self._loop.time()
        patience = visit.deadline - now
        try:
            visit.reservation = self.charges.conclude(
                asking, found, visit.caller, patience_seconds=patience, dialect=visit.dialect, now=now
            )
        except Refused as refused:
            self._decisions.refuse_visit(visit, _SHED[refused.reason], refused)
            return
        if visit.reservation is None:
            self.pay(visit, now, here=True)

    def connect(self, address: str | None) -> Connected | Refused | None:
        """Charge a connection; see `Charges.connect`. What is only counted is not refused."""
        found = self.charges.connect(address, self._loop.time())
        if isinstance(found, Refused):
            self._decisions.shed[NORMAL, Shed.QUOTA] += 1
            return found if self._decisions.enforced else None
        return found

    def state(self) -> dict[str, object]:
        """Return what `/state` shows of the store; nothing when there is none."""
        problem = self._problem if self._file is None else self._file.problem
        if self.store.url is None and problem is None:
            return {}
        return {"store": self.store.state() | ({} if problem is None else {"urlProblem": problem})}

    def _url_of(self, policy: Policy) -> StoreUrl | None:
        self._problem = None
        if policy.shared_store_url is None:
            return None
        try:
            return StoreUrl.parse(policy.shared_store_url)
        except UrlError as error:
            self._problem = str(error)
            logger.error("the shared store's URL is not taken over problem=%r", self._problem)
            return None
