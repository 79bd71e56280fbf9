"""A store of Secrets that two operators can race for."""

from typing import Any

import pytest

from penstock.kube import errors


class SecretStore:
    """Just enough of `Client` for the drain key.

    Attributes:
        late: A Secret that appears between the first look and the create, as if another operator had made it.
    """

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.late: dict[str, Any] | None = None
        self.creates = 0

    async def get(self, _kind: object, _key: object) -> dict[str, Any]:
        if self.secret is None:
            raise errors.NotFound("get", status=404, reason="NotFound", server_message="no")
        return self.secret

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.creates += 1
        if self.late is not None:
            self.secret = self.late
        if self.secret is not None:
            raise errors.Conflict("create", status=409, reason="AlreadyExists", server_message="exists")
        self.secret = obj
        return obj


@pytest.fixture
def store() -> SecretStore:
    return SecretStore()
