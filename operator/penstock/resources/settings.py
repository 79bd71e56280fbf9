"""What the builders need besides the backend itself."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """The operator's own contribution to the children.

    Attributes:
        limiter_image: Image of the limiter where the backend names none: the operator's own.
        drain_key: Secret from which each backend's drain token is made; kept out of `repr`.
    """

    limiter_image: str
    drain_key: bytes = field(repr=False)

    def drain_token(self, backend_uid: str) -> str:
        """Return the token with which kubelet's preStop hook proves itself to a backend's limiters.

        It depends on nothing that changes during the backend's life, so a pod template never changes because of it.
        """
        return hmac.new(self.drain_key, backend_uid.encode(), hashlib.sha256).hexdigest()
