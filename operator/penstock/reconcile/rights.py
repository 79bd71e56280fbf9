"""Reads that a cluster may not let the operator make: asked for, and done without for a while when denied.

What such a read brings makes a status better, and no backend may fail for want of it. A denied read is not tried again
at once, so that a missing rule costs a request a minute and not one per look.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.kube.errors import Forbidden

DENIED_SECONDS = 60.0

T = TypeVar("T")


class Denied(Exception):  # noqa: N818 - says what happened
    """The operator may not read this.

    Attributes:
        right: What is missing, in words of RBAC: `list events`.
    """

    def __init__(self, right: str) -> None:
        super().__init__(f"the operator may not {right}")
        self.right = right


class OptionalReads:
    """Remembers what was denied, by right and namespace.

    Args:
        now: A clock that never goes back, in seconds.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._denied_at: dict[tuple[str, str], float] = {}

    async def ask(self, right: str, namespace: str, request: Callable[[], Awaitable[T]]) -> T:
        """Make a read.

        Raises:
            Denied: It is refused, or was a short while ago.
            KubeError: Whatever else the read raises.
        """
        place = (right, namespace)
        denied_at = self._denied_at.get(place)
        if denied_at is not None and self._now() - denied_at < DENIED_SECONDS:
            raise Denied(right)
        try:
            answer = await request()
        except Forbidden as error:
            self._denied_at[place] = self._now()
            raise Denied(right) from error
        self._denied_at.pop(place, None)
        return answer
