"""Fifty clients at once against one quota: what really passed, in every time as long as the window."""

import heapq
import random
from collections import deque
from dataclasses import dataclass

import pytest

from penstock.admission.connected import Connected
from penstock.admission.quotas import QuotaRefusal, Quotas
from penstock.api.ratelimits import OF_CONNECTIONS, QuotaAlgorithm, QuotaUnit, RateLimit

CLIENTS = 50
WINDOW_SECONDS = 10
TOTAL_SECONDS = 80
LIMITS = {QuotaUnit.REQUESTS: 40, QuotaUnit.TOKENS: 4000, QuotaUnit.PROMPT_TOKENS: 3000, QuotaUnit.CONNECTIONS: 40}

BOUND = {
    QuotaAlgorithm.TOKEN_BUCKET: 2,
    QuotaAlgorithm.LEAKY_BUCKET: 1,
    QuotaAlgorithm.FIXED_WINDOW: 2,
    QuotaAlgorithm.SLIDING_WINDOW: 1,
}
"""Limits that any time as long as the window may see; a full bucket may be emptied and fill up again in it."""


@dataclass
class Passed:
    started: float
    ended: float
    cost: int
    error: int


def cost_of(unit, prompt, output):
    return {QuotaUnit.TOKENS: prompt + output, QuotaUnit.PROMPT_TOKENS: prompt}.get(unit, 1)


def run(algorithm, unit, *, error, seed):
    """Let the clients ask again as soon as they are answered, and return what passed.

    Args:
        algorithm: How the quota counts.
        unit: What it counts.
        error: How far the truth may be from the estimate, as a part of it.
        seed: Which clients they are.
    """
    dice = random.Random(seed)
    limit = RateLimit(name="q", limit=LIMITS[unit], unit=unit, algorithm=algorithm, window_seconds=WINDOW_SECONDS)
    quotas = Quotas((limit,), None, now=0)
    passed = []
    turns = [(dice.uniform(0, 3), number, None) for number in range(CLIENTS)]
    heapq.heapify(turns)
    while turns[0][0] < TOTAL_SECONDS:
        now, client, settle = heapq.heappop(turns)
        if settle is not None:
            settle(now)
            heapq.heappush(turns, (now + dice.choice((0.0, 0.05)), client, None))
            continue
        prompt, output = dice.randint(1, 100), dice.randint(1, 100)
        if unit in OF_CONNECTIONS:
            answer = quotas.connect(f"192.0.2.{client}", now)
        else:
            answer = quotas.reserve(
                f"t{client}", f"192.0.2.{client}", requests=1, prompt_tokens=prompt, output_tokens=output, now=now
            )
        if isinstance(answer, QuotaRefusal):
            # Some keep to what they are told, others hammer.
            heapq.heappush(turns, (now + (answer.wait_seconds if client % 4 else 0.1), client, None))
            continue
        factor = 1 + dice.uniform(-error, error)
        truth = round(prompt * factor), round(output * factor)
        started = now + answer.delay_seconds
        ended = started + dice.choice((0.0, 0.3, 8.0))
        wrong = abs(cost_of(unit, *truth) - cost_of(unit, prompt, output))
        passed.append(Passed(started, ended, cost_of(unit, *truth), wrong))

        def end(now, answer=answer, truth=truth):
            if isinstance(answer, Connected):
                answer.close(now)
            else:
                answer.settle(*truth, now=now)

        heapq.heappush(turns, (ended, client, end))
    return passed


@pytest.mark.parametrize(("error", "seed"), [(0.0, 1), (0.5, 2)])
@pytest.mark.parametrize("unit", [one for one in QuotaUnit if one is not QuotaUnit.OPEN_CONNECTIONS], ids=str)
@pytest.mark.parametrize("algorithm", list(QuotaAlgorithm), ids=str)
def test_clients_together_pass_a_limit_by_the_error_of_their_estimates_at_most(algorithm, unit, error, seed):
    passed = run(algorithm, unit, error=error, seed=seed)
    limit = LIMITS[unit]
    largest = max(one.cost for one in passed)
    # Starts at an even pace take up the whole time between them, so the last one in a time may reach beyond it.
    most = BOUND[algorithm] * limit + (largest if algorithm is QuotaAlgorithm.LEAKY_BUCKET else 0)
    passed.sort(key=lambda one: one.started)
    seen, behind = 0, deque()
    for last in passed:
        seen += last.cost
        behind.append(last)
        while behind[0].started <= last.started - WINDOW_SECONDS:
            seen -= behind.popleft().cost
        if seen > most:
            begin = behind[0].started
            assert seen <= most + sum(one.error for one in passed if one.started <= last.started and one.ended >= begin)
    whole = sum(one.cost for one in passed if one.started < TOTAL_SECONDS)
    windows = TOTAL_SECONDS / WINDOW_SECONDS
    under_way = sum(one.error for one in passed if one.ended >= TOTAL_SECONDS)
    assert whole <= (windows + 1) * limit + under_way + largest
    assert whole >= 0.7 * windows * limit
