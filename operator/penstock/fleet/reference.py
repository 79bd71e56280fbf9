"""The reference page of the admission rate: where it can be seen, and every rule that moves it."""

from __future__ import annotations

from penstock.api.reference import words
from penstock.fleet.law import CHANGING, HEADROOM, Rule

LIMITING = (*(rule for rule in Rule if rule in CHANGING), Rule.TRACKING, Rule.FIXED)
"""What can have made R what it is."""

_HEAD = f"""# The admission rate

R is the rate at which a backend admits requests. The operator decides it anew in each round of its slow loop
(`--slow-loop-interval-seconds`), and pushes each replica its part. While R binds nothing, the limit of requests in
flight and the quotas decide alone. This page is generated from `operator/penstock/fleet`; run
`python scripts/generate.py` after changing it. A decision that changes nothing is pushed again only when half of its
time is over, so what `pushed` in `/state` says may be half a minute old.

Pressure is how loaded a replica is: the largest of what is known, each as a part of its target in
`spec.admission.adaptive.targets`; for `slots` that is the number of slots of llama.cpp, for `queueWait` the time that a
class may wait. 1 is fully loaded. Signals are missing when nothing is known of more than half of the replicas. R
follows by being {HEADROOM:g} times the highest rate admitted lately.

| seen in | is |
|---|---|
| `status.admission.limitedBy` | the rule that has made R what it is: {", ".join(f"`{rule}`" for rule in LIMITING)} |
| `status.admission.ratePerMinute` | R, while it binds; like `limitedBy` it follows once a minute at most |
| `penstock_backend_admission_rate_per_second` (operator) | R, binding or not |
| `penstock_backend_admission_rate_binds` (operator) | whether it binds |
| `penstock_slow_loop_rounds_total` (operator) | rounds by the `rule` that decided |
| `pushed.rule` in `/state` (limiter, port 9901) | the rule that decided the round whose push is in force |
| `pushed.signal`, `pushed.value` in `/state` | what gave the pressure in that round, in its own unit |
| `pushed.ratePerSecond` in `/state` | the replica's part of R, while it binds |
| `penstock_admission_rate_per_second` (limiter) | the same |
| `signals.heldBy` in `/state` | what makes requests wait: `limit` (of requests in flight), `rate` (R), `none` |
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join((_HEAD, words("Rules", "rule", Rule)))
