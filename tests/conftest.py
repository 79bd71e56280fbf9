"""What all tests share."""

import asyncio

import hypothesis

# Examples are counted, not timed: a machine that runs several things at once is slow at times.
hypothesis.settings.register_profile("penstock", deadline=None)
hypothesis.settings.load_profile("penstock")


def pytest_configure() -> None:
    """Say that there is no current event loop outside of async tests.

    looptime asks for one before every synchronous test; left to itself asyncio would make one that nobody closes, and
    warnings are errors here.
    """
    asyncio.set_event_loop(None)
