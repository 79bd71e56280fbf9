"""The retry budget: how much of the admitted work may be clients trying again.

A client whose request is slow sends it again, and layers of clients multiply: three tries of three tries are nine
requests for one answer, at the moment when the replica can least afford them. A budget breaks that: retries are at
most a share of all requests admitted in the last ten seconds, and a small number is free so that a quiet replica
serves the retry of its only client.

A request is a retry when its client says so (`x-stainless-retry-count`), or when the same caller sent the same body
before and has had no whole answer to it in the two minutes since: it was refused, it failed, or the client left. So
callers that ask the same thing several times at once, or again after an answer, are not taken for retries.

| the same body came before | and | count in the header | is a retry |
|---|---|---|---|
| no | | 0 or none | no |
| no | | > 0 | yes |
| yes | it is still under way | 0 or none | no |
| yes | it ended without a whole answer less than 120 s ago | any | yes |
| yes | it ended so before that | 0 or none | no |
| yes | it was answered | 0 or none | no |
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

from penstock.admission.recent import Recent

FLOOR = 3
MEMORY_SECONDS = 120.0
MEMORY_LIMIT = 8192
"""Bodies remembered at a time, about 1 MiB; the oldest is forgotten first."""

_DIGEST_BYTES = 16


def fingerprint(caller: str, pieces: Iterable[bytes]) -> bytes:
    """Return what two requests have in common when the same caller sends the same body.

    Args:
        caller: Tenant and path, so that nobody is held to be the retry of somebody else.
        pieces: The body, in any division.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(caller.encode("utf-8", "surrogateescape"))
    digest.update(b"\0")
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


class RetryBudget:
    """Recognises retries and says whether there is room for one more.

    Attributes:
        percent: Share of admitted requests that may be retries; 0 admits none, and 100 all.
        retries: Retries admitted ever.
    """

    def __init__(self, percent: int) -> None:
        self.percent = percent
        self.retries = 0
        self._unanswered: OrderedDict[bytes, float] = OrderedDict()
        self._admitted = Recent()
        self._admitted_retries = Recent()

    def is_retry(self, mark: bytes, *, retry_count: int, now: float) -> bool:
        """Say whether a request is a retry.

        Args:
            mark: Its `fingerprint`.
            retry_count: What its client says; 0 when it says nothing.
            now: Seconds.
        """
        ended = self._unanswered.get(mark)
        return retry_count > 0 or (ended is not None and now - ended < MEMORY_SECONDS)

    def unanswered(self, mark: bytes, now: float) -> None:
        """Remember a request that ended without a whole answer: the same again is a retry of it."""
        self._unanswered.pop(mark, None)
        self._unanswered[mark] = now
        if len(self._unanswered) > MEMORY_LIMIT:
            self._unanswered.popitem(last=False)

    def answered(self, mark: bytes) -> None:
        """Forget a request whose client has its whole answer: what comes next is no retry of it."""
        self._unanswered.pop(mark, None)

    def allows(self, now: float) -> bool:
        """Say whether one more retry may be admitted."""
        retries = self._admitted_retries.total(now) + 1
        share = (self._admitted.total(now) + 1) * self.percent
        return self.percent > 0 and (retries <= FLOOR or retries * 100 <= share)

    def admitted(self, now: float, *, retry: bool) -> None:
        """Count a request that was admitted."""
        self._admitted.count(now)
        if retry:
            self._admitted_retries.count(now)
            self.retries += 1

    def remaining(self, now: float) -> int:
        """Return how many retries could be admitted now, one after the other."""
        if self.percent == 0:
            return 0
        admitted, retries = self._admitted.total(now), self._admitted_retries.total(now)
        if self.percent == 100:
            return max(FLOOR, admitted)
        # each admitted retry is an admitted request too: r + k <= share * (a + k)
        room = (admitted * self.percent - retries * 100) // (100 - self.percent)
        return max(room, FLOOR - retries, 0)
