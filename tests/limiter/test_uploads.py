"""Large uploads and streams together, under the default memory limit: the short form of `bench.limiter.uploads`."""

from __future__ import annotations

from bench.limiter import uploads

UPLOADS = 50
STREAMS = 20


def test_uploads_cut_no_stream_and_do_not_end_the_limiter() -> None:
    outcome = uploads.run(uploads=UPLOADS, streams=STREAMS)
    assert outcome.fault == ""
    assert outcome.cut == 0
    assert outcome.answers[200] + outcome.answers[503] == UPLOADS
    assert outcome.answers[200] > 0
    assert outcome.without_hint == 0
    assert outcome.peak_bytes <= uploads.MEMORY_BYTES


def test_texts_that_python_would_keep_in_four_bytes_a_character_do_not_end_the_limiter_either() -> None:
    outcome = uploads.run(uploads=8, streams=1, at_once=8, ends_with="\U0001f6b0")
    assert outcome.fault == ""
    assert outcome.cut == 0
    assert outcome.answers[200] + outcome.answers[503] == 8
    assert outcome.answers[200] > 0
    assert outcome.peak_bytes <= uploads.MEMORY_BYTES
