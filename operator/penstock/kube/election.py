"""Takes part in an election: reads the Lease, writes it, and sleeps, as `kube.candidacy` decides."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from penstock.kube.candidacy import Candidacy, Fence, Record, Step, Timing
from penstock.kube.errors import Conflict, Forbidden, KubeError, NotFound

JITTER = 0.2
"""Each wait is longer by up to this share, so that candidates do not ask in step."""

SOONEST_SECONDS = 0.05
"""The least between two looks at the Lease."""

_log = logging.getLogger(__name__)


class LeadershipLost(Exception):  # noqa: N818 - says what happened
    """Another replica leads or may lead by now; this process has to end."""


class LeaseStore(Protocol):
    """Where the Lease is kept. Both methods raise `KubeError`."""

    async def read(self) -> Record | None:
        """Return what it says, or None when there is none."""
        ...

    async def write(self, record: Record) -> Record:
        """Create it, or replace the version that the record was read as: `Conflict` when somebody was faster."""
        ...


class Elector:
    """Takes part in the election.

    Args:
        store: The Lease.
        identity: Unlike that of any other process.
        timing: The election's times.
        random: Uniform numbers in [0, 1).
        clock: Monotonic seconds.

    Attributes:
        fence: What every write of this process asks.
    """

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        timing: Timing,
        *,
        random: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fence = Fence(clock)
        self._store = store
        self._candidacy = Candidacy(identity, timing)
        self._timing = timing
        self._random = random
        self._clock = clock
        self._looked_at = float("-inf")
        self._told = ""
        self._in_trouble = False

    @property
    def in_touch(self) -> bool:
        """Whether the Lease could be read or written within the last duration."""
        return self._clock() - self._looked_at < self._timing.duration

    @property
    def transitions(self) -> int:
        """How often the Lease has changed hands: who leads later has more, unless the Lease was deleted."""
        return self._candidacy.transitions

    async def acquire(self) -> None:
        """Wait until this process leads; however long the API server is away.

        Raises:
            Forbidden: A right is missing.
            NotFound: The Lease's namespace does not exist.
        """
        while not await self._try():
            wait = min(self._pause(), max(self._candidacy.wait_seconds(now=self._clock()), SOONEST_SECONDS))
            await asyncio.sleep(self._pause() if self._in_trouble else wait)

    async def hold(self) -> None:
        """Renew until cancelled.

        Raises:
            LeadershipLost: No renewal succeeded in time, or another process has taken the Lease.
        """
        while True:
            await asyncio.sleep(min(self._pause(), max(self.fence.left_seconds, 0.0)))
            if not self.fence.open:
                raise LeadershipLost(f"no renewal of the Lease succeeded for {self._timing.deadline:.0f} s")
            try:
                async with asyncio.timeout(self.fence.left_seconds):
                    await self._renew()
            except TimeoutError:
                continue
            except KubeError as error:
                _log.warning("the Lease could not be renewed and is tried again: %s", error)

    async def release(self) -> None:
        """Stop writing and give the Lease back, so that another replica need not wait; a failure is only logged."""
        self.fence.shut()
        try:
            try:
                await self._give_back()
            except Conflict:
                # A renewal that was cut short has arrived all the same.
                self._candidacy.observe(await self._store.read(), now=self._clock())
                await self._give_back()
        except KubeError as error:
            _log.warning("the Lease could not be given back, another replica takes it when it expires: %s", error)

    async def _give_back(self) -> None:
        record = self._candidacy.release()
        if record is not None:
            self._candidacy.wrote(await self._store.write(record))

    async def _try(self) -> bool:
        try:
            record = await self._store.read()
            self._looked_at = self._clock()
            if self._candidacy.observe(record, now=self._looked_at) is Step.WAIT:
                self._tell(f"standing by, {record.holder if record else 'nobody'} leads")
                return False
            await self._write()
        except Conflict:
            return False
        except (Forbidden, NotFound):
            raise
        except KubeError as error:
            self._tell(f"the Lease cannot be read or taken: {error}", trouble=True)
            return False
        return self.fence.open

    async def _renew(self) -> None:
        try:
            await self._write()
        except (Conflict, NotFound):
            # Somebody touched the Lease. What it says now decides, and only this process' own name lets it go on.
            record = await self._store.read()
            if record is not None and record.holder != self._candidacy.identity:
                self.fence.shut()
                raise LeadershipLost(f"{record.holder or 'nobody'} holds the Lease now") from None
            self._candidacy.observe(record, now=self._clock())
            await self._write()

    async def _write(self) -> None:
        sent_at = self._clock()
        record = await self._store.write(self._candidacy.claim(stamp=_stamp()))
        self._looked_at = self._clock()
        self._candidacy.wrote(record)
        self.fence.extend(sent_at + self._timing.deadline)

    def _pause(self) -> float:
        return self._timing.retry * (1.0 + JITTER * self._random())

    def _tell(self, text: str, *, trouble: bool = False) -> None:
        if text != self._told:
            _log.log(logging.WARNING if trouble else logging.INFO, "%s", text)
        self._told, self._in_trouble = text, trouble


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
