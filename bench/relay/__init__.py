"""What relaying a stream costs: the limiter beside proxies that people know, on one backend in one run.

The load and the backend are one Go program (`go/`), pinned to one core; the proxy under test has another core to
itself. `loads` runs the load, `contenders` starts the proxies, `rounds` interleaves them, `report` judges.
"""
