"""What the builders need besides the backend itself."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.api.backend import LLMBackend
from penstock.api.engine import EngineType


class Platform(StrEnum):
    """What decides over the identity of containers."""

    KUBERNETES = "Kubernetes"
    """The pod does: it names user and group."""

    OPENSHIFT = "OpenShift"
    """The project does: its SecurityContextConstraints give each pod a user and refuse any other."""


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """The operator's own contribution to the children.

    Attributes:
        limiter_image: Image of Penstock: the limiter where the backend names none, and the download of models.
        drain_key: Secret from which each backend's drain token is made; kept out of `repr`.
        platform: What decides over the identity of containers.
        default_images: Image of an engine where the backend names none; without an entry it is the one that the release
            pins for the accelerator asked for.
        namespace: The operator's own, from where it may reach the limiters.
        push_public_keys: What limiters check pushes with. It is policy: another key touches no pod.
    """

    limiter_image: str
    drain_key: bytes = field(repr=False)
    platform: Platform = Platform.KUBERNETES
    default_images: Mapping[EngineType, str] = field(default_factory=dict)
    namespace: str = "penstock-system"
    push_public_keys: tuple[str, ...] = ()

    def drain_token(self, backend_uid: str) -> str:
        """Return the token with which kubelet's preStop hook proves itself to a backend's limiters.

        It depends on nothing that changes during the backend's life, so a pod template never changes because of it.
        """
        return hmac.new(self.drain_key, backend_uid.encode(), hashlib.sha256).hexdigest()

    def with_image(self, backend: LLMBackend) -> LLMBackend:
        """Return the backend with the administrator's default image filled in where it names none of its own.

        So everything that follows from an image, such as the engine's version, follows from the one that will run.
        """
        engine = backend.spec.engine
        default = self.default_images.get(engine.type)
        if engine.image or not default:
            return backend
        spec = backend.spec.model_copy(update={"engine": engine.model_copy(update={"image": default})})
        return backend.model_copy(update={"spec": spec})
