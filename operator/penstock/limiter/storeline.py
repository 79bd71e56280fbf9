"""One connection to the shared store: any number of script calls in one round trip.

All of the protocol, TLS and authentication is redis-py's; it is an optional extra, so it is imported when a store is
configured and not before. Nothing is repeated here: who repeats a charge charges twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.limiter import storescripts
from penstock.limiter.storeanswers import bounded_parser
from penstock.limiter.storeurl import StoreUrl

if TYPE_CHECKING:
    from redis.asyncio import Redis

CONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
"""How long to wait for answers that come too late: what was charged with them is given back. Only then is the
connection given up."""


logger = logging.getLogger(__name__)


class LineError(Exception):
    """The store cannot be used; the text is a word for metrics, never what the store says."""


class Call(NamedTuple):
    """One call of a script."""

    script: storescripts.Script
    keys: Sequence[bytes]
    arguments: Sequence[bytes]


class Line:
    """See the module's docstring."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    @classmethod
    async def open(cls, url: StoreUrl, scripts: Sequence[storescripts.Script]) -> Line:
        """Connect and make the scripts known.

        Raises:
            LineError: the store cannot be used.
        """
        try:
            from redis.asyncio import Redis  # noqa: PLC0415 - an optional extra
            from redis.asyncio.retry import Retry  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415

            parser = bounded_parser()
        except ImportError:
            raise LineError("library_missing") from None
        try:
            client = Redis.from_url(
                url.secret,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=READ_SECONDS,
                retry=Retry(NoBackoff(), 0),
                retry_on_error=[],
                max_connections=1,
                protocol=2,
                driver_info=None,
                parser_class=parser,
            )
        except ValueError:
            raise LineError("bad_url") from None
        line = cls(client)
        try:
            for answer in await line._run([("SCRIPT", "LOAD", script.text) for script in scripts]):
                _checked(answer)
        except BaseException:
            await line.close()
            raise
        return line

    async def ping(self) -> None:
        """Ask for a sign of life.

        Raises:
            LineError: there is none.
        """
        for answer in await self._run([("PING",)]):
            _checked(answer)

    async def call(self, calls: Sequence[Call]) -> list[object]:
        """Call scripts and return their answers, in order; one that failed is a `LineError`.

        Raises:
            LineError: the connection failed; nobody knows what was done.
        """
        commands = [("EVALSHA", one.script.digest, len(one.keys), *one.keys, *one.arguments) for one in calls]
        return [_error_of(answer) or answer for answer in await self._run(commands)]

    async def close(self) -> None:
        """End the connection at once; that the other side does not take part in it is no matter."""
        from redis.exceptions import RedisError  # noqa: PLC0415

        with suppress(RedisError, OSError):  # with TLS there is a farewell, and a store that hangs lets it time out
            await self._client.aclose()

    async def _run(self, commands: Sequence[Sequence[Any]]) -> list[object]:
        from redis.exceptions import RedisError  # noqa: PLC0415

        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        try:
            answers: list[object] = await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            raise _error_of(error) or LineError("error") from None
        except Exception:
            logger.exception("the client of the shared store failed in a way that is not known")
            raise LineError("error") from None
        return answers


def _checked(answer: object) -> None:
    error = _error_of(answer)
    if error is not None:
        raise error


def _error_of(answer: object) -> LineError | None:
    """Return what an answer that is an error means for metrics and logs; None for any other."""
    if not isinstance(answer, Exception):
        return None
    from redis import exceptions  # noqa: PLC0415

    words = (
        ((exceptions.AuthenticationError, exceptions.NoPermissionError), "refused_password"),
        (exceptions.NoScriptError, "lost_scripts"),
        (exceptions.InvalidResponse, "not_understood"),
        (exceptions.ReadOnlyError, "read_only"),
        (exceptions.OutOfMemoryError, "out_of_memory"),
        (exceptions.BusyLoadingError, "loading"),
        ((exceptions.TimeoutError, TimeoutError), "timeout"),
        ((exceptions.ConnectionError, OSError), "unreachable"),
    )
    for kinds, word in words:
        if isinstance(answer, kinds):
            return LineError(word)
    return LineError("error")
