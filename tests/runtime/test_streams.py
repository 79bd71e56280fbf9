"""Which watches live, told by the requests of the HTTP session that they use."""

import aiohttp
import pytest
from aiohttp import web

from penstock.runtime.streams import Streams


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def listed():
    return []


@pytest.fixture
def streams(clock, listed):
    streams = Streams(clock, on_list=listed.append)
    streams.expect(["/a", "/b"])
    return streams


@pytest.fixture
async def get(streams):
    """Return a function that makes a request through a traced session, against a server that refuses /b."""

    async def answer(request):
        return web.Response(status=403 if request.path == "/b" else 200)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession(trace_configs=[streams.trace()]) as session:

        async def get(path, **query):
            async with session.get(url + path, params=query):
                pass

        yield get
    await runner.cleanup()


async def test_a_watch_that_never_opens_grows_old_from_the_start(streams, clock):
    clock.now = 100
    assert streams.oldest_seconds() == 100


async def test_the_oldest_counts(streams, clock, get):
    clock.now = 100
    await get("/a", watch="true")
    clock.now = 130
    assert streams.oldest_seconds() == 130
    streams.expect(["/a"])
    assert streams.oldest_seconds() == 30


async def test_a_refused_watch_is_no_sign_of_life(streams, clock, get):
    streams.expect(["/b"])
    clock.now = 100
    await get("/b", watch="true")
    assert streams.oldest_seconds() == 100


async def test_a_watch_that_is_new_is_young_and_one_that_stays_keeps_its_age(streams, clock):
    clock.now = 100
    streams.expect(["/a", "/new"])
    clock.now = 110
    assert streams.oldest_seconds() == 110
    streams.expect(["/new"])
    assert streams.oldest_seconds() == 10


async def test_without_any_watch_nothing_is_old(streams, clock):
    streams.expect([])
    clock.now = 100
    assert streams.oldest_seconds() == 0


async def test_a_list_is_told_once_for_all_its_pages(get, listed):
    await get("/a", limit="500")
    await get("/a", limit="500", **{"continue": "token"})
    await get("/a", watch="true")
    await get("/elsewhere", limit="500")
    await get("/b", limit="500")
    assert listed == ["/a"]
