"""The store in which the replicas of a backend count together, as one of them uses it.

Theory of operation. A request asks and waits for at most 20 ms; that is all it ever pays for a store. Whatever goes
wrong, a late answer, an error, a lost connection, puts the store out of use, and from that moment requests are decided
by the local split without asking, while one task tries to get back.

    state   | an answer is late, or an error   | a try fails       | a try succeeds in 20 ms | another URL, or none
    --------|----------------------------------|-------------------|-------------------------|---------------------
    off     |                                  |                   |                         | -> trying
    trying  |                                  | waits, then again | -> in use               | -> trying, off
    in use  | all that ask are told; -> trying |                   |                         | -> trying, off

Questions of one moment travel together, and while one round trip is under way the next gathers: so one connection is
enough for any load, and a busy store is asked in larger pieces. An answer that comes too late is still read: what was
charged with it is given back, since the local split has charged it too. `corrections` go along, and wait while the
store is out of use. What was charged on a connection that broke is unknown, and is left to time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.admission.question import AnswerError, Settlement, SharedCharge
from penstock.limiter import storescripts
from penstock.limiter.asking import Asking
from penstock.limiter.corrections import Corrections
from penstock.limiter.storeline import Call, Line, LineError
from penstock.limiter.storequestions import Questions
from penstock.limiter.storeurl import StoreUrl

logger = logging.getLogger(__name__)

BUDGET_SECONDS = 0.02
BATCH_LIMIT = 64
"""Calls in one round trip: what is parsed at once must not hold up the streams."""

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
STEADY_SECONDS = 30.0
"""A store that was in use for less is come back to ever more slowly, for each time costs a request its 20 ms."""

LOOK_SECONDS = 5.0
"""A connection that nobody uses is looked at this often, so that its end costs no request 20 ms."""

FAREWELL_SECONDS = 0.2
NOT_REACHED_YET = "not_reached_yet"


class SharedStore:
    """See the module's docstring.

    Attributes:
        in_use: Whether requests ask it now.
        url: Where it is; None when there is none.
        problem: One word for why it is not in use; empty when it is, or when there is none.
        decided: Requests decided by the store, and while there should be one by the local split.
        failures: How often it went out of use or could not be reached, by word.
        corrections: What is still to be put right there.
        answer_seconds: Time that answers took, added up; those of `decided["store"]`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.in_use = False
        self.url: StoreUrl | None = None
        self.problem = ""
        self.decided: Counter[str] = Counter(store=0, local=0)
        self.failures: Counter[str] = Counter()
        self.corrections = Corrections()
        self.answer_seconds = 0.0
        self._loop = loop
        self._decide = storescripts.decide()
        self._settle = storescripts.settle()
        self._questions = Questions(loop, budget_seconds=BUDGET_SECONDS, late=self._is_late)
        self._work = asyncio.Event()
        self._changed = asyncio.Event()

    def use(self, url: StoreUrl | None) -> None:
        """Use another store, or none. Who asks at this moment is decided locally."""
        if url == self.url:
            return
        moved = self.url is None or url is None or url.shown != self.url.shown
        self.url = url
        if moved:
            self.corrections.clear()
        self._out_of_use("" if url is None else NOT_REACHED_YET)
        self._changed.set()
        self._work.set()

    def ask(self, asking: Asking) -> None:
        """Send a question; its asker is told later, within the budget. Only while the store is in use."""
        self._questions.add(asking)
        self._work.set()

    def poster(self) -> Callable[[Settlement], None]:
        """Return what takes corrections of charges in the store of now."""
        return partial(self._post, "" if self.url is None else self.url.shown)

    def _post(self, home: str, settlement: Settlement) -> None:
        """Send a correction, now or when the store is back; not to another store."""
        if self.url is None or self.url.shown != home:
            return
        self.corrections.add(settlement)
        self._work.set()

    def state(self) -> dict[str, object]:
        """Return what `/state` shows."""
        return {
            "url": None if self.url is None else self.url.shown,
            "inUse": self.in_use,
            "problem": self.problem,
        }

    async def run(self) -> None:
        """Keep the store in use, as long as it can be, until cancelled."""
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            self._changed.clear()
            url = self.url
            if url is None:
                await self._changed.wait()
                continue
            began = self._loop.time()
            try:
                await self._use(url)
            except LineError as error:
                if self.url == url:
                    self._failed(str(error))
            if self.url != url or self._loop.time() - began > STEADY_SECONDS:
                pause_seconds = FIRST_PAUSE_SECONDS
            if self.url == url:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_seconds * random.uniform(0.8, 1.2)):
                        await self._changed.wait()
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    # ---- one connection

    async def _use(self, url: StoreUrl) -> None:
        """Connect, and serve until another store is wanted.

        Raises:
            LineError: it could not be reached, is too slow, or something went wrong.
        """
        line = await Line.open(url, (self._decide, self._settle))
        try:
            began = self._loop.time()
            await line.ping()
            if self._loop.time() - began > BUDGET_SECONDS:
                raise LineError("slow")
            if self.url == url:
                self._in_use()
            while self.in_use and self.url == url:
                await self._serve(line)
        except asyncio.CancelledError:
            await self._say_farewell(line)
            raise
        finally:
            await line.close()

    async def _serve(self, line: Line) -> None:
        """Wait for work and do one round trip of it."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._work.wait()
        except TimeoutError:
            await line.ping()
            return
        await self._round_trip(line)
        if not self.in_use:
            await self._send_posts(line)  # what came too late is given back on this connection, which still works
        elif not self._questions and not self.corrections:
            self._work.clear()

    async def _round_trip(self, line: Line) -> None:
        """Send what has gathered, as much as is good for one, and tell the askers."""
        sent = self._questions.send(BATCH_LIMIT)
        posts = self.corrections.take(BATCH_LIMIT - len(sent))
        calls = [Call(self._decide, one.question.keys, one.question.arguments) for one in sent]
        calls += [Call(self._settle, one.keys, one.arguments) for one in posts]
        if not calls:
            return
        answers = await self._call(line, calls, posts)
        self._questions.answered()
        failed = None
        for asking, answer in zip(sent, answers, strict=False):
            failed = self._answered(asking, answer) or failed
        failed = self.corrections.answered(posts, answers[len(sent) :]) or failed
        self._questions.watch()
        if failed is not None:
            raise failed

    def _answered(self, asking: Asking, answer: object) -> LineError | None:
        """Tell an asker; return what is wrong with the answer, if anything is."""
        if isinstance(answer, LineError):
            self._tell(asking, None)
            return answer
        try:
            found = asking.question.answer(answer)
        except AnswerError:
            self._tell(asking, None)
            return LineError("not_understood")
        if asking.is_awaited:
            self._tell(asking, found)
        elif isinstance(found, SharedCharge) and (correction := found.cancellation()) is not None:
            self.poster()(correction)
        return None

    def _tell(self, asking: Asking, found: object) -> None:
        if asking.is_awaited:
            self.decided["local" if found is None else "store"] += 1
            if found is not None:
                self.answer_seconds += self._loop.time() - asking.asked_at
        try:
            asking.tell(found)  # type: ignore[arg-type]
        except Exception:
            logger.exception("a request could not be told what the shared store says")

    async def _send_posts(self, line: Line) -> None:
        while posts := self.corrections.take(BATCH_LIMIT):
            answers = await self._call(line, [Call(self._settle, one.keys, one.arguments) for one in posts], posts)
            if (failed := self.corrections.answered(posts, answers)) is not None:
                raise failed

    async def _call(self, line: Line, calls: Sequence[Call], posts: Sequence[Settlement]) -> list[object]:
        try:
            return await line.call(calls)
        except BaseException:
            self.corrections.broken(posts)
            raise

    async def _say_farewell(self, line: Line) -> None:
        """Send what is left before the process ends."""
        with suppress(LineError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._send_posts(line)

    # ---- in use or not

    def _in_use(self) -> None:
        self.in_use = True
        self.problem = ""
        self._work.set()
        logger.info("shared store in use url=%s", None if self.url is None else self.url.shown)

    def _failed(self, problem: str) -> None:
        self.failures[problem] += 1
        self._out_of_use(problem)

    def _out_of_use(self, problem: str) -> None:
        """Decide locally from now on, and tell all that wait for an answer."""
        is_news = problem and problem != NOT_REACHED_YET and (self.in_use or problem != self.problem)
        if is_news and self.url is not None:
            logger.warning(
                "shared store not in use url=%s problem=%s consequence=%r",
                self.url.shown,
                problem,
                "each replica enforces its share of the quotas until the store is back",
            )
        self.in_use = False
        self.problem = problem
        for asking in self._questions.drop():
            self._tell(asking, None)

    def _is_late(self) -> None:
        self._failed("late")
        self._work.set()
