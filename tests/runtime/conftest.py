"""A store of Secrets that two operators can race for."""

from typing import Any

import pytest

from penstock.kube import errors


class SecretStore:
    """Just enough of `Client` for the keys of an installation.

    Attributes:
        secrets: What is there, by name.
        late: A Secret that appears between the first look and the create, as if another operator had made it.
        creates: How many creates were asked for.
        down: Whether it refuses everything.
    """

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.late: dict[str, Any] | None = None
        self.creates = 0
        self.down = False

    async def get(self, _kind: object, key: Any) -> dict[str, Any]:
        if self.down:
            raise errors.Unavailable("down")
        if key.name not in self.secrets:
            raise errors.NotFound("get", status=404, reason="NotFound", server_message="no")
        return self.secrets[key.name]

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.creates += 1
        if self.late is not None:
            self.put(self.late)
        name = obj["metadata"]["name"]
        if name in self.secrets:
            raise errors.Conflict("create", status=409, reason="AlreadyExists", server_message="exists")
        self.secrets[name] = obj
        return obj

    def put(self, secret: dict[str, Any]) -> None:
        """Put a Secret there."""
        self.secrets[secret["metadata"]["name"]] = secret


@pytest.fixture
def store() -> SecretStore:
    return SecretStore()
