"""How long ago each watch was last known to live.

kopf opens a watch again whenever it ends, and ends it itself when its time is over, after a minute and a half. So every
watch that lives is opened now and then. The times of opening are taken from the HTTP session that kopf uses;
one that lies too far back means that the watch, its task or its connection is dead, although the process runs.

A list between two watches means that the API server could not tell what happened in between. Lists name what is there,
never what has gone, so each is reported, and the kind is compared with the cache (`reconcile.audit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace

import aiohttp


class Streams:
    """See the module's docstring.

    Args:
        clock: Monotonic seconds.
        on_list: Told the path of a collection that was listed.
    """

    def __init__(self, clock: Callable[[], float], *, on_list: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_list = on_list
        self._opened: dict[str, float] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """Wait for these collections to be watched from now on, and for no other; what is known of them stays."""
        now = self._clock()
        self._opened = {path: self._opened.get(path, now) for path in paths}

    def oldest_seconds(self) -> float:
        """Return how long ago the watch was opened that was opened first; 0 when none is expected."""
        return max((self._clock() - opened for opened in self._opened.values()), default=0.0)

    def trace(self) -> aiohttp.TraceConfig:
        """Return what an HTTP session needs to tell of its requests."""
        config = aiohttp.TraceConfig()
        config.on_request_end.append(self._ended)
        return config

    async def _ended(
        self, _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        path = params.url.path
        if params.response.status != 200 or path not in self._opened:
            return
        if "watch" in params.url.query:
            self._opened[path] = self._clock()
        elif "continue" not in params.url.query:
            self._on_list(path)
