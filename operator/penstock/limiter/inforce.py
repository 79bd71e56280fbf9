"""What is in force at a replica: the policy file and the last push, put together.

    from          | what
    --------------|------------------------------------------------------------------
    a push        | its policy while its TTL runs, share, rate, peers
    the file      | the policy otherwise; trusted keys always
    neither       | built-in values, and the replica is not ready

A pushed policy is in force at once, and the same text comes with the ConfigMap within about a minute. When the TTL is
over the file counts again, whatever was pushed.

API keys are mounted, so only a new pod can have them. A policy that begins to ask for keys reaches the pods that have
none first; they identify callers as they did until they are replaced, or every caller with a good key would be refused
for as long as that takes. A pod that never had another policy refuses them: nobody has said whom it may let in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.api.policy import Policy
from penstock.api.tenants import IdentifyBy
from penstock.limiter.admission import Admission
from penstock.limiter.config import PolicyFile
from penstock.limiter.pushed import Pushes

logger = logging.getLogger(__name__)


class InForce:
    """See the module's docstring.

    Args:
        file: The policy file.
        pushes: What was pushed.
        admission: Where limits count.
        configure: Called with each policy that comes in force.

    Attributes:
        waits_for_keys: Whether callers are identified as before, because this pod has no keys.
    """

    def __init__(
        self, file: PolicyFile, pushes: Pushes, admission: Admission, *, configure: Callable[[Policy], None]
    ) -> None:
        self._file = file
        self._pushes = pushes
        self._admission = admission
        self._configure = configure
        self._asked: Policy | None = None
        self._policy: Policy | None = None
        self.waits_for_keys = False
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
        asked = self._pushes.policy or self._file.policy
        if asked is not self._asked:
            self._asked = asked
            before, self._policy = self._policy, self._for_this_pod(asked)
            if self._policy != before:
                self._configure(self._policy)
        acceptance, admission, now = self._pushes.acceptance, self._admission, self._admission.now()
        if acceptance.share is not None:
            admission.charges.set_share(acceptance.share, now=now)
            admission.reception.identifier.trust_peers(acceptance.peers(now))
            admission.gate.set_rate(acceptance.rate_per_second(now), now)
            admission.room.advance()

    def _for_this_pod(self, asked: Policy) -> Policy:
        """Return what can be put in force here of a policy that is asked for."""
        tenants, before = asked.tenants, self._policy
        needs_keys = tenants is not None and tenants.identify_by is IdentifyBy.API_KEY and tenants.default is None
        waits = needs_keys and self._admission.keys is None and before is not None
        if waits and not self.waits_for_keys:
            logger.warning("callers are identified as before until this pod is replaced: it has no API keys mounted")
        self.waits_for_keys = waits
        return asked.model_copy(update={"tenants": before.tenants}) if waits and before is not None else asked
