"""How long a request would wait, told from how fast others were served lately.

Two rates are measured: requests that returned their place, and prompt tokens that were worked off. A rate says what the
engine can do only while there is more to do than it can: so the clock of the first runs while requests wait, that of
the second while a prompt is being worked off. At other times a rate would show how little was asked for, and the first
burst after a quiet hour would be refused.

Samples come at any time and in bunches. Each sample is an amount and the seconds since the one before. The rate is the
sum of the amounts over the sum of the seconds, both weighted by age with a half-life of 10 seconds of that clock. So it
is right for an engine that finishes a batch once a minute as well as for one that finishes hundreds a second. A silence
longer than the seconds the rate rests on lowers it.

Until there are 5 samples over at least 1 second the rate is unknown; then nothing is predicted, and only the bounds of
the queue decide.
"""

from __future__ import annotations

HALF_LIFE_SECONDS = 10.0
MINIMUM_SAMPLES = 5
MINIMUM_SECONDS = 1.0


class Rate:
    """What is done per second of a clock that can be stopped.

    Attributes:
        running: Whether the clock runs.
    """

    __slots__ = ("_amount", "_mark", "_samples", "_seconds", "_since", "running")

    def __init__(self) -> None:
        self.running = False
        self._amount = 0.0
        self._seconds = 0.0
        self._samples = 0
        self._since = 0.0
        """Seconds since the last sample, until `_mark`."""
        self._mark: float | None = None
        """When the clock was read last; None while it stands."""

    def run(self, now: float, *, running: bool) -> None:
        """Start or stop the clock."""
        if running == self.running:
            return
        self.running = running
        self._since = self._silence(now)
        self._mark = now if running else None

    def add(self, amount: float, now: float) -> None:
        """Take a sample; ignored while the clock stands."""
        if self._mark is None:
            return
        seconds = self._silence(now)
        kept = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        self._amount = self._amount * kept + amount
        self._seconds = self._seconds * kept + seconds
        self._samples += 1
        self._since = 0.0
        self._mark = now

    def per_second(self, now: float) -> float | None:
        """Return the rate, None while it is unknown."""
        if self._samples < MINIMUM_SAMPLES or self._seconds < MINIMUM_SECONDS or self._amount <= 0:
            return None
        return self._amount / max(self._seconds, self._silence(now))

    def _silence(self, now: float) -> float:
        """Return the seconds of the clock since the last sample."""
        return self._since if self._mark is None else self._since + max(0.0, now - self._mark)


class Waits:
    """Predicts waits.

    Attributes:
        completions: Requests per second that give their place to others.
        prefill: Prompt tokens per second.
    """

    __slots__ = ("completions", "prefill")

    def __init__(self) -> None:
        self.completions = Rate()
        self.prefill = Rate()

    def watch(self, now: float, *, waiting: bool, prefilling: bool) -> None:
        """Say whether requests wait and whether prompts are being worked off, from now on."""
        if waiting is not self.completions.running:
            self.completions.run(now, running=waiting)
        if prefilling is not self.prefill.running:
            self.prefill.run(now, running=prefilling)

    def predicted_seconds(self, position: int, tokens_ahead: int, now: float) -> float | None:
        """Return how long a request would wait, None while that is unknown.

        Args:
            position: How many places must become free until one is for this request; 0 when it only waits for prompts.
            tokens_ahead: Prompt tokens to be worked off before its own.
            now: The time.
        """
        known = [
            ahead / rate
            for ahead, rate in (
                (position, self.completions.per_second(now)),
                (tokens_ahead, self.prefill.per_second(now)),
            )
            if rate is not None
        ]
        return max(known, default=None)

    def prefill_seconds(self, tokens: int, now: float) -> float:
        """Return how long a prompt takes; 0 while that is unknown."""
        rate = self.prefill.per_second(now)
        return tokens / rate if rate else 0.0
