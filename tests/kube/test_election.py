"""Elections in virtual time, over a Lease in memory that can fail, hang, and be edited."""

import asyncio

import pytest

from penstock.kube.candidacy import Record, Timing
from penstock.kube.election import Elector, LeadershipLost
from penstock.kube.errors import Conflict, Forbidden, Unavailable

pytestmark = pytest.mark.looptime

TIMING = Timing(duration=15, deadline=10, retry=2)


def refused(kind, status):
    return kind("test", status=status, reason="", server_message="no")


class Shared:
    """The Lease in the cluster.

    Attributes:
        record: What it says.
        down: Every request fails.
        hang: No request is answered.
    """

    def __init__(self):
        self.record = None
        self.down = self.hang = False
        self.error = None
        self.writes = []
        self._version = 0

    async def _answer(self):
        if self.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        if self.down:
            raise Unavailable("down")

    async def read(self):
        await self._answer()
        return self.record

    async def write(self, record):
        await self._answer()
        if record.version != (self.record.version if self.record else ""):
            raise refused(Conflict, 409)
        self._version += 1
        self.record = Record(
            holder=record.holder,
            duration=record.duration,
            transitions=record.transitions,
            acquired=record.acquired,
            version=str(self._version),
        )
        self.writes.append((now(), record.holder))
        return self.record


def now():
    return asyncio.get_running_loop().time()


@pytest.fixture
def lease():
    return Shared()


@pytest.fixture
def make(lease):
    def make(name, *, random=lambda: 0.5):
        return Elector(lease, name, TIMING, random=random, clock=now)

    return make


async def until_leading(elector, *, within):
    async with asyncio.timeout(within):
        await elector.acquire()
    return now()


async def cancel(task):
    task.cancel()
    return await asyncio.gather(task, return_exceptions=True)


async def test_the_first_one_leads_at_once_and_may_write(make, lease):
    elector = make("a")
    assert not elector.fence.open
    assert await until_leading(elector, within=1) < 0.1
    assert elector.fence.open
    assert lease.record.holder == "a"


async def test_of_two_that_start_together_one_leads(make):
    first, second = make("a"), make("b")
    winners = [asyncio.create_task(elector.acquire()) for elector in (first, second)]
    await asyncio.sleep(14)
    assert [task.done() for task in winners].count(True) == 1
    assert [elector.fence.open for elector in (first, second)].count(True) <= 1
    for task in winners:
        await cancel(task)


async def test_a_leader_renews_for_as_long_as_it_holds_and_the_other_waits(make, lease):
    first, second = make("a"), make("b")
    await first.acquire()
    holding, waiting = asyncio.create_task(first.hold()), asyncio.create_task(second.acquire())
    await asyncio.sleep(3600)
    assert not holding.done()
    assert not waiting.done()
    assert first.fence.open
    assert {holder for _time, holder in lease.writes} == {"a"}
    await cancel(holding)
    await cancel(waiting)


@pytest.mark.parametrize("random", [0.0, 0.999], ids=["no jitter", "full jitter"])
async def test_after_a_leader_vanished_the_other_leads_within_20_seconds(make, random):
    first, second = make("a"), make("b", random=lambda: random)
    await first.acquire()
    holding, waiting = asyncio.create_task(first.hold()), asyncio.create_task(second.acquire())
    await asyncio.sleep(61)
    await cancel(holding)
    vanished = now()
    async with asyncio.timeout(60):
        await waiting
    assert 12 < now() - vanished < 20
    assert not first.fence.open


async def test_after_a_release_the_other_leads_at_its_next_look(make):
    first, second = make("a"), make("b")
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(5)
    await first.release()
    assert not first.fence.open
    released = now()
    await waiting
    assert now() - released < 3


async def test_an_outage_shorter_than_the_deadline_is_survived(make, lease):
    elector = make("a")
    await elector.acquire()
    holding = asyncio.create_task(elector.hold())
    await asyncio.sleep(30)
    lease.down = True
    await asyncio.sleep(7)
    lease.down = False
    await asyncio.sleep(30)
    assert not holding.done()
    assert elector.fence.open
    await cancel(holding)


@pytest.mark.parametrize("trouble", ["down", "hang"])
async def test_without_a_renewal_the_leader_has_stopped_before_another_can_lead(make, lease, trouble):
    first, second = make("a"), make("b")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(30)
    setattr(lease, trouble, True)
    failed = now()
    with pytest.raises(LeadershipLost, match="for 10 s"):
        await holding
    assert not first.fence.open
    assert now() - failed <= TIMING.deadline
    await cancel(waiting)


async def test_a_leader_that_sees_another_s_name_ends(make, lease):
    elector = make("a")
    await elector.acquire()
    holding = asyncio.create_task(elector.hold())
    await asyncio.sleep(5)
    lease.record = Record(holder="b", duration=15, version="edited")
    with pytest.raises(LeadershipLost, match="b holds"):
        await holding
    assert not elector.fence.open
    await elector.release()
    assert lease.record.holder == "b"


@pytest.mark.parametrize("edit", ["touched", "deleted"])
async def test_a_leader_whose_lease_was_touched_or_deleted_goes_on(make, lease, edit):
    elector = make("a")
    await elector.acquire()
    holding = asyncio.create_task(elector.hold())
    await asyncio.sleep(5)
    lease.record = Record(holder="a", duration=15, version="touched") if edit == "touched" else None
    await asyncio.sleep(30)
    assert not holding.done()
    assert lease.record.holder == "a"
    await cancel(holding)


async def test_a_missing_right_is_raised_and_not_waited_for(make, lease):
    lease.error = refused(Forbidden, 403)
    with pytest.raises(Forbidden):
        await make("a").acquire()


async def test_a_candidate_waits_for_an_api_server_that_is_away(make, lease):
    lease.down = True
    elector = make("a")
    waiting = asyncio.create_task(elector.acquire())
    await asyncio.sleep(600)
    assert not waiting.done()
    assert not elector.in_touch
    lease.down = False
    async with asyncio.timeout(5):
        await waiting
    assert elector.in_touch


async def test_a_lease_that_cannot_be_given_back_is_no_error(make, lease):
    elector = make("a")
    await elector.acquire()
    lease.down = True
    await elector.release()
    assert not elector.fence.open


async def test_it_is_given_back_even_when_a_renewal_had_arrived_unheard(make, lease):
    elector = make("a")
    await elector.acquire()
    lease.record = Record(holder="a", duration=15, version="renewed unheard")
    await elector.release()
    assert lease.record.holder == ""


async def test_each_leader_counts_more_changes_of_hands_than_the_one_before(make, lease):
    first, second = make("a"), make("b")
    await first.acquire()
    assert first.transitions == 0
    await first.release()
    await second.acquire()
    assert second.transitions == 1 == lease.record.transitions
    await second.release()
    third = make("c")
    await third.acquire()
    assert third.transitions == 2


async def test_a_lease_that_was_deleted_counts_anew(make, lease):
    first, second = make("a"), make("b")
    await first.acquire()
    await first.release()
    lease.record = None
    await second.acquire()
    assert second.transitions == 0
