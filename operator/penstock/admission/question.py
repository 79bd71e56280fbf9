"""What a shared store is asked about one request, and what its answer means.

The store checks and charges; it answers with what each quota stood at before, and all that follows from that (how long
to wait, how much later to start, what is left) is computed here by the same meters that count without a store. So there
is one truth about an algorithm for clients, wherever it is counted.

    Question ── keys, arguments ──> store ── reply ──> answer ──> SharedCharge ── settlement ──> store
                                                          └─────> QuotaRefusal

Keys are hashes: a holder may have any name, and none of it is to be read in the store. Their part in braces is the same
for all quotas of a backend, so that a store of several nodes keeps them together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.admission.account import METERS, Use, allowance_of, cost_of
from penstock.admission.meter import PASS, Meter, moment
from penstock.admission.quotaview import QuotaRefusal, QuotaView, longer, refusal_of, view_of
from penstock.api.ratelimits import QuotaAlgorithm, RateLimit

LETTERS: Final[dict[QuotaAlgorithm, bytes]] = {
    QuotaAlgorithm.TOKEN_BUCKET: b"T",
    QuotaAlgorithm.LEAKY_BUCKET: b"L",
    QuotaAlgorithm.FIXED_WINDOW: b"F",
    QuotaAlgorithm.SLIDING_WINDOW: b"S",
}
_HEAD_NUMBERS = 4
"""What comes before the counts in a reply: the time, and the allowance, which is that of the question."""

_MOST = 2**63
"""No count comes near it; beyond it numbers stop to be floats, and arithmetic to be quick."""


class AnswerError(ValueError):
    """What the store answered is no answer to the question: somebody else writes to its keys."""


class Holding(NamedTuple):
    """One quota of one holder.

    Attributes:
        quota: What is allowed.
        holder: Name of the holder among those of its kind; empty for the backend.
    """

    quota: RateLimit
    holder: str


class Asked(NamedTuple):
    """One quota that a question is about.

    Attributes:
        quota: What is allowed.
        key: Where the store counts it.
        cost: What the request takes.
    """

    quota: RateLimit
    key: bytes
    cost: int


class Settlement(NamedTuple):
    """What is told to the store at the end of a request."""

    keys: tuple[bytes, ...]
    arguments: tuple[bytes, ...]


class Keys:
    """Names the keys of one backend."""

    def __init__(self, backend_uid: str) -> None:
        digest = hashlib.blake2b(backend_uid.encode(), digest_size=8).hexdigest()
        self._prefix = b"penstock:{%b}:" % digest.encode()

    def of(self, holding: Holding) -> bytes:
        """Return the key of a quota of a holder; a quota of another name or unit is another quota."""
        quota, holder = holding
        told = f"{quota.per} {quota.unit} {quota.name} {holder}"
        return (
            self._prefix + hashlib.blake2b(told.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest().encode()
        )


class SharedCharge:
    """What the store has charged for a request.

    Attributes:
        view: What is left of each quota now.
        delay_seconds: How much later to start the request.
    """

    __slots__ = ("_asked", "_at", "_use", "delay_seconds", "view")

    def __init__(
        self, asked: Sequence[Asked], use: Use, *, at: int, view: tuple[QuotaView, ...], delay_seconds: float
    ) -> None:
        self._asked = asked
        self._use = use
        self._at = at
        self.view = view
        self.delay_seconds = delay_seconds

    def settlement(self, prompt_tokens: int, output_tokens: int) -> Settlement | None:
        """Return what the store is to be told once the truth is known; None when the estimate was right."""
        return self._corrected(Use(self._use.requests, prompt_tokens, output_tokens))

    def cancellation(self) -> Settlement | None:
        """Return what the store is to be told when nothing reached the engine."""
        return self._corrected(Use(0, 0, 0))

    def _corrected(self, truth: Use) -> Settlement | None:
        changes = [(one, cost_of(one.quota, truth) - one.cost) for one in self._asked]
        changes = [(one, more) for one, more in changes if more]
        if not changes:
            return None
        arguments = [b"%d" % self._at]
        for one, more in changes:
            arguments += _described(one.quota, more)
        return Settlement(tuple(one.key for one, _ in changes), tuple(arguments))


class Question:
    """Whether a request passes its shared quotas.

    Attributes:
        asked: The quotas.
        keys, arguments: What the store's script is given.
    """

    __slots__ = ("_use", "arguments", "asked", "keys")

    def __init__(self, holdings: Iterable[Holding], use: Use, *, keys: Keys) -> None:
        self._use = use
        self.asked = tuple(Asked(one.quota, keys.of(one), cost_of(one.quota, use)) for one in holdings)
        self.keys = tuple(one.key for one in self.asked)
        arguments: list[bytes] = []
        for one in self.asked:
            arguments += _described(one.quota, one.cost)
        self.arguments = tuple(arguments)

    def answer(self, reply: object) -> SharedCharge | QuotaRefusal:
        """Return what the store's reply means.

        Raises:
            AnswerError: it is none to this question.
        """
        if not isinstance(reply, list) or len(reply) != 2 + len(self.asked):
            raise AnswerError("the store answered in another form")
        try:
            at = _number(reply[1])
            meters = [_meter(one, line) for one, line in zip(self.asked, reply[2:], strict=True)]
        except (ValueError, IndexError, AttributeError, TypeError) as error:
            raise AnswerError(f"the store holds something else under a quota's key ({error})") from None
        now = moment(at)
        delay_seconds = 0.0
        worst = None
        for one, meter in zip(self.asked, meters, strict=True):
            check = meter.check(one.cost, now)
            if check is not PASS:
                delay_seconds = max(delay_seconds, check.delay_seconds)
                worst = longer(worst, one.quota, check)
        passes = bool(reply[0])
        if passes is not (worst is None):
            raise AnswerError("the store decided otherwise than its own numbers say")
        if passes:
            for one, meter in zip(self.asked, meters, strict=True):
                meter.charge(one.cost, now)
        view = tuple(view_of(one.quota, meter, now) for one, meter in zip(self.asked, meters, strict=True))
        if worst is not None:
            return refusal_of(worst, view)
        return SharedCharge(self.asked, self._use, at=at, view=view, delay_seconds=delay_seconds)


def _described(quota: RateLimit, amount: int) -> tuple[bytes, ...]:
    allowance = allowance_of(quota)
    numbers = (allowance.limit, allowance.window_ticks, allowance.largest, amount)
    return (LETTERS[quota.algorithm], *(b"%d" % number for number in numbers))


def _meter(asked: Asked, line: bytes) -> Meter:
    """Return a meter that stands at what a line of a reply tells."""
    kind, *numbers = line.split()
    if kind != LETTERS[asked.quota.algorithm]:
        raise ValueError("its algorithm is another")
    meter = METERS[asked.quota.algorithm](allowance_of(asked.quota), moment(_number(numbers[0])))
    meter.recall([_number(number) for number in numbers[_HEAD_NUMBERS:]])
    return meter


def _number(told: bytes | int) -> int:
    if not isinstance(told, bytes | int):
        raise TypeError(f"{type(told).__name__} is no number")
    number = int(told)
    if abs(number) >= _MOST:
        raise ValueError("a number is too large")
    return number
