"""How writes follow each other, in virtual time."""

import asyncio

import pytest

from penstock.kube.pace import LONGEST_PAUSE_SECONDS, Pace

pytestmark = pytest.mark.looptime


async def times(pace, count, *, write=True):
    """Return when each of several requests that are asked for at once may be sent."""
    loop = asyncio.get_running_loop()
    sent = []

    async def send():
        await pace.turn(write=write)
        sent.append(round(loop.time(), 3))

    await asyncio.gather(*(send() for _ in range(count)))
    return sent


async def test_a_burst_passes_and_the_rest_follows_at_the_rate():
    assert await times(Pace(writes_per_second=10, burst=3), 6) == [0, 0, 0, 0.1, 0.2, 0.3]


async def test_a_rest_fills_the_bucket_and_never_above_the_burst():
    pace = Pace(writes_per_second=10, burst=3)
    await times(pace, 3)
    await asyncio.sleep(100)
    start = asyncio.get_running_loop().time()
    assert [round(time - start, 3) for time in await times(pace, 4)] == [0, 0, 0, 0.1]


async def test_reads_are_not_counted():
    assert await times(Pace(writes_per_second=1, burst=1), 5, write=False) == [0] * 5


@pytest.mark.parametrize("write", [True, False], ids=["writes", "reads"])
async def test_a_pause_holds_back_everything(write):
    pace = Pace(writes_per_second=1000, burst=1000)
    pace.pause(7)
    assert await times(pace, 2, write=write) == [7, 7]


async def test_a_shorter_pause_does_not_end_a_longer_one():
    pace = Pace(writes_per_second=1000, burst=1000)
    pace.pause(7)
    pace.pause(1)
    assert await times(pace, 1) == [7]


async def test_a_pause_that_comes_while_one_waits_is_waited_for_too():
    pace = Pace(writes_per_second=1000, burst=1000)
    pace.pause(5)
    asyncio.get_running_loop().call_later(4, pace.pause, 3)
    assert await times(pace, 1) == [7]


async def test_a_pause_is_never_endless():
    pace = Pace(writes_per_second=1000, burst=1000)
    pace.pause(86400)
    assert await times(pace, 1) == [LONGEST_PAUSE_SECONDS]


async def test_one_pause_is_one_line_in_the_log(caplog):
    pace = Pace(writes_per_second=1000, burst=1000)
    for _ in range(5):
        pace.pause(3)
    assert [record.getMessage() for record in caplog.records] == ["the API server asks for a pause of 3 s"]
