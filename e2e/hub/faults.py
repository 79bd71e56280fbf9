"""What goes wrong with a hub, one switch each; they act on the bytes of files only, unless they say otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Faults:
    """Faults that are on.

    Attributes:
        statuses: Answered instead, one per request to the hub (not its storage), until none is left.
        retry_after: Their `Retry-After` header.
        cut_after_bytes: A response ends after so many bytes, once per entry.
        corrupt_times: So many responses have their last byte changed.
        no_ranges: Every response holds the whole file.
        bytes_per_second: How fast files come.
        without_checksums: The hub names files and nothing else about them, as a plain mirror would.
    """

    statuses: list[int] = field(default_factory=list)
    retry_after: str | None = None
    cut_after_bytes: list[int] = field(default_factory=list)
    corrupt_times: int = 0
    no_ranges: bool = False
    bytes_per_second: float | None = None
    without_checksums: bool = False
