"""What is in force at a replica: the policy file and the last push, put together.

    from          | what
    --------------|------------------------------------------------------------------
    a push        | its policy while its TTL runs, share, rate, peers
    the file      | the policy otherwise; trusted keys always
    neither       | built-in values, and the replica is not ready

A pushed policy is in force at once, and the same text comes with the ConfigMap within about a minute. When the TTL is
over the file counts again, whatever was pushed.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.policy import Policy
from penstock.limiter.admission import Admission
from penstock.limiter.config import PolicyFile
from penstock.limiter.pushed import Pushes


class InForce:
    """See the module's docstring.

    Args:
        file: The policy file.
        pushes: What was pushed.
        admission: Where limits count.
        configure: Called with each policy that comes in force.
    """

    def __init__(
        self, file: PolicyFile, pushes: Pushes, admission: Admission, *, configure: Callable[[Policy], None]
    ) -> None:
        self._file = file
        self._pushes = pushes
        self._admission = admission
        self._configure = configure
        self._policy: Policy | None = None
        pushes.on_applied = self.follow

    @property
    def source(self) -> str:
        """Where the policy in force is from, in one word."""
        return "push" if self._pushes.policy else "file" if self._file.loaded else "built-in"

    def refresh(self) -> None:
        """Read the file again if it has changed, and follow."""
        self._file.refresh()
        self._pushes.trust(self._file.policy.trusted_keys)
        self.follow()

    def follow(self) -> None:
        """Put in force what counts by now; to be called when something was pushed and when time has passed."""
        if not self._file.loaded:
            return
        policy = self._pushes.policy or self._file.policy
        if policy is not self._policy:
            changed = policy != self._policy
            self._policy = policy
            if changed:
                self._configure(policy)
        acceptance, admission, now = self._pushes.acceptance, self._admission, self._admission.now()
        if acceptance.share is not None:
            admission.charges.set_share(acceptance.share, now=now)
            admission.reception.identifier.trust_peers(acceptance.peers(now))
            admission.gate.set_rate(acceptance.rate_per_second(now), now)
            admission.room.advance()
