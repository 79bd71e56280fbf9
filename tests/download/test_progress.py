"""Progress as lines."""

import threading

import pytest

from penstock.download import progress as progress_module
from penstock.download.progress import Progress, size


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0.0 MB"), (1_500_000, "1.5 MB"), (999_000_000, "999.0 MB"), (4_680_000_000, "4.7 GB")]
)
def test_sizes_are_for_people(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("total", "present", "speed", "line"),
    [
        (4_000_000_000, 1_000_000_000, 100e6, "1.0 GB of 4.0 GB (25 %), 100.0 MB/s, about 30 s to go"),
        (4_000_000_000, 1_000_000_000, 0, "1.0 GB of 4.0 GB (25 %), 0.0 MB/s"),
        (0, 0, 0, "0.0 MB of 0.0 MB (100 %), 0.0 MB/s"),
    ],
    ids=["running", "standing still", "empty files"],
)
def test_a_line_says_how_far_how_fast_and_how_long(total, present, speed, line):
    assert Progress(total_bytes=total, present_bytes=present).line(bytes_per_second=speed) == line


def test_what_is_taken_back_still_was_received():
    progress = Progress(total_bytes=100, present_bytes=0)
    progress.add(60)
    progress.add(-60)
    assert progress.received_bytes == 60
    assert progress.line(bytes_per_second=0).startswith("0.0 MB")


def test_lines_come_until_the_end(monkeypatch):
    monkeypatch.setattr(progress_module, "INTERVAL_SECONDS", 0.01)
    said, twice = [], threading.Event()

    def say(line):
        said.append(line)
        if len(said) == 2:
            twice.set()

    with Progress(total_bytes=2_000_000, present_bytes=1_000_000).told(say):
        assert twice.wait(10)
    assert said[0].startswith("1.0 MB of 2.0 MB (50 %)")
    assert "progress" not in {thread.name for thread in threading.enumerate()}
