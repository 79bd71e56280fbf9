"""What all tests share."""

import asyncio


def pytest_configure() -> None:
    """Say that there is no current event loop outside of async tests.

    looptime asks for one before every synchronous test; left to itself asyncio would make one that nobody closes, and
    warnings are errors here.
    """
    asyncio.set_event_loop(None)
