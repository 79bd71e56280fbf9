"""The shape of an engine: its facts, and what follows from a spec.

An engine's methods are pure: the same spec and version give the same command line, so a pod template built twice is
the same template.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock.api import checks
from penstock.api.backend import LLMBackendSpec
from penstock.api.errors import Problem
from penstock.api.kubernetes import EnvVar
from penstock.api.model import MODEL_DIRECTORY
from penstock.engines.facts import EngineFacts, WritableDirectory
from penstock.engines.version import EngineVersion

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - a mount point, nothing is written here


class Engine(ABC):
    """An engine: its facts, and what follows from a spec."""

    facts: EngineFacts

    @abstractmethod
    def version(self, image: str, declared: str | None) -> EngineVersion | None:
        """Return the engine's version: the declared one, else what the image's tag says; None when unknown."""

    @abstractmethod
    def command(self) -> list[str] | None:
        """Return the container's `command`; None keeps the image's entry point."""

    @abstractmethod
    def args(self, spec: LLMBackendSpec, version: EngineVersion | None, model_path: str) -> list[str]:
        """Return the container's `args`, the user's own last."""

    @abstractmethod
    def environment(self, spec: LLMBackendSpec, version: EngineVersion | None) -> list[EnvVar]:
        """Return the container's `env`; a user's variable replaces one of the same name."""

    @abstractmethod
    def check_args(self, args: Sequence[str]) -> list[Problem]:
        """Return what is wrong with the user's own arguments."""

    @abstractmethod
    def check_env(self, env: Sequence[EnvVar]) -> list[Problem]:
        """Return what is wrong with the user's own environment variables."""

    @abstractmethod
    def check_version(self, spec: LLMBackendSpec) -> list[Problem]:
        """Return what is wrong with the declared version, or with one too old to be run."""

    @abstractmethod
    def writable_directories(self, spec: LLMBackendSpec) -> list[WritableDirectory]:
        """Return the folders the engine must be able to write to."""

    @abstractmethod
    def stop_seconds(self, version: EngineVersion | None) -> int:
        """Return how long the engine may take from SIGTERM to its end once nothing is in flight."""

    def check(self, spec: LLMBackendSpec) -> list[Problem]:
        """Return everything in a spec that the API server cannot see and this engine, or any, cannot run with."""
        return [
            *checks.check(spec),
            *self.check_version(spec),
            *self.check_args(spec.engine.args),
            *self.check_env(spec.engine.env),
            *self._check_mounts(spec),
        ]

    def image(self, spec: LLMBackendSpec) -> str:
        """Return the image to run: the one that the spec names, else the one pinned for the GPUs it asks for."""
        if spec.engine.image:
            return spec.engine.image
        vendors = (name.partition("/")[0] for name in spec.resources.gpus())
        return next(
            (self.facts.gpu_images[vendor] for vendor in vendors if vendor in self.facts.gpu_images),
            self.facts.default_image,
        )

    def version_of(self, spec: LLMBackendSpec) -> EngineVersion | None:
        """Return the version of the engine that a spec runs; None when unknown."""
        return self.version(self.image(spec), spec.engine.version)

    def concurrency(self, spec: LLMBackendSpec) -> int | None:
        """Return the requests one replica works on at a time; None when only the running engine knows."""
        return spec.engine.max_concurrency or self.facts.default_concurrency

    def context_tokens(self, spec: LLMBackendSpec) -> int | None:
        """Return the tokens one request may use; None when only the running engine knows."""
        return spec.engine.context_length or self.facts.default_context_tokens

    def _check_mounts(self, spec: LLMBackendSpec) -> list[Problem]:
        taken = {directory.path: "Penstock mounts it" for directory in self.writable_directories(spec)}
        taken[SHARED_MEMORY_PATH] = "set `spec.pod.sharedMemoryMebibytes`"
        taken[MODEL_DIRECTORY] = "the model is mounted there"
        return [
            Problem(
                f"spec.pod.volumeMounts[{index}].mountPath",
                f"`{mount.mount_path}` is taken ({taken[path]}); mount below it or choose another path",
            )
            for index, mount in enumerate(spec.pod.volume_mounts)
            if (path := mount.mount_path.rstrip("/")) in taken
        ]


def merged(own: dict[str, str], users: Sequence[EnvVar]) -> list[EnvVar]:
    """Return Penstock's variables in order, then the user's; a user's variable replaces ours of the same name."""
    replaced = {variable.name for variable in users}
    return [EnvVar(name=name, value=value) for name, value in own.items() if name not in replaced] + list(users)
