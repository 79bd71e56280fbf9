"""Labels and annotations that users add to what Penstock makes.

Penstock's own keys select pods and tell children from foreign objects, so they are refused here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from penstock.api.annotations import Matches, MatchingKeys
from penstock.api.names import KEY, KEY_CHARACTERS, KEY_MESSAGE, LABEL_VALUE, LABEL_VALUE_MESSAGE

OWN_LABELS = r"^(serving\.penstock\.dev/.*|app\.kubernetes\.io/(name|instance|managed-by))$"
"""Labels that Penstock sets."""

OWN_ANNOTATIONS = r"^(serving\.penstock\.dev/.*|kubectl\.kubernetes\.io/default-container)$"
"""Annotations that Penstock sets."""

_OWN_MESSAGE = "this key is Penstock's own; choose another"

LabelKey = Annotated[str, Field(max_length=KEY_CHARACTERS), Matches(KEY, KEY_MESSAGE)]
"""The key of a label or a taint."""

LabelValue = Annotated[str, Field(max_length=63), Matches(LABEL_VALUE, LABEL_VALUE_MESSAGE)]
"""The value of a label or a taint; may be empty."""

_WELL_FORMED = MatchingKeys(KEY, KEY_MESSAGE, longest=KEY_CHARACTERS)

Labels = Annotated[
    dict[str, LabelValue],
    Field(max_length=32),
    _WELL_FORMED,
    MatchingKeys(OWN_LABELS, _OWN_MESSAGE, refused=True),
]
"""Labels of a child; Penstock's own are refused."""

Annotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]],
    Field(max_length=32),
    _WELL_FORMED,
    MatchingKeys(OWN_ANNOTATIONS, _OWN_MESSAGE, refused=True),
]
"""Annotations of a child; Penstock's own are refused."""

NodeLabels = Annotated[dict[str, LabelValue], Field(max_length=32), _WELL_FORMED]
"""Labels that a node must have."""

ForeignLabels = Annotated[dict[str, LabelValue], Field(max_length=32), replace(_WELL_FORMED, named=False)]
"""Labels of an object that others than Penstock make."""

ForeignAnnotations = Annotated[
    dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32), replace(_WELL_FORMED, named=False)
]
"""Annotations of an object that others than Penstock make."""
