"""Labels that users may not set are the ones that Penstock sets."""

from __future__ import annotations

import re

from penstock.api.backend import LLMBackend
from penstock.api.labels import OWN_LABELS
from penstock.resources.labels import labels
from tests.api.examples import backend


def test_every_label_of_penstock_is_refused() -> None:
    own = labels(LLMBackend.parse(backend()))
    assert [key for key in own if re.fullmatch(OWN_LABELS, key) is None] == []
