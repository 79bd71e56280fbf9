"""Labels and annotations that users add to what Penstock makes.

Penstock's own keys select pods and tell children from foreign objects, so they are refused here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches, MatchingKeys

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_NAME}$"
_KEY_MESSAGE = "must be a key such as team or example.com/team"

OWN_LABELS = r"^(serving\.penstock\.dev/.*|app\.kubernetes\.io/(name|instance|managed-by))$"
"""Labels that Penstock sets."""

OWN_ANNOTATIONS = r"^(serving\.penstock\.dev/.*|kubectl\.kubernetes\.io/default-container)$"
"""Annotations that Penstock sets."""

_OWN_MESSAGE = "this key is Penstock's own; choose another"

LabelValue = Annotated[
    str,
    Field(max_length=63),
    Matches(rf"^({_NAME})?$", "must be letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit"),
]

Labels = Annotated[
    dict[str, LabelValue],
    Field(max_length=32),
    MatchingKeys(_KEY, _KEY_MESSAGE),
    MatchingKeys(OWN_LABELS, _OWN_MESSAGE, refused=True),
]
"""Labels of a child; Penstock's own are refused."""

Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]],
    Field(max_length=32),
    MatchingKeys(_KEY, _KEY_MESSAGE),
    MatchingKeys(OWN_ANNOTATIONS, _OWN_MESSAGE, refused=True),
]
"""Annotations of a child; Penstock's own are refused."""

NodeLabels = Annotated[dict[str, LabelValue], Field(max_length=32), MatchingKeys(_KEY, _KEY_MESSAGE)]
"""Labels that a node must have."""
