"""What the limiter may change while it runs: the file `policy.json` of its ConfigMap.

Values that must match the running pod are in `ReplicaSettings` instead.
"""

from __future__ import annotations

import json

from pydantic import ValidationError

from penstock.api.backend import MAXIMUM_BODY_MEBIBYTES, BodyMebibytes, LogLevel
from penstock.api.base import ApiModel
from penstock.api.errors import InvalidPolicy

POLICY_FILE = "policy.json"


class Policy(ApiModel):
    """The reloadable part of the limiter's configuration; the defaults are safe built-ins."""

    log_level: LogLevel = LogLevel.INFO
    """How much the limiter logs."""

    maximum_body_mebibytes: BodyMebibytes = MAXIMUM_BODY_MEBIBYTES
    """Largest request body in MiB."""

    @classmethod
    def parse(cls, text: str) -> tuple[Policy, tuple[str, ...]]:
        """Read the file's text and return the policy with the keys this version does not know, sorted.

        Raises:
            InvalidPolicy: the text is no JSON object, or a known value is out of range.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InvalidPolicy(f"{POLICY_FILE} is not JSON ({error})") from None
        if not isinstance(values, dict):
            raise InvalidPolicy(f"{POLICY_FILE} must hold a JSON object, not {type(values).__name__}")
        try:
            policy = cls.model_validate_json(text, strict=True, by_name=False)
        except ValidationError as error:
            lines = (
                f"`{'.'.join(map(str, entry['loc']))}`: {entry['msg']}" for entry in error.errors(include_url=False)
            )
            raise InvalidPolicy(f"{POLICY_FILE}: {'; '.join(lines)}") from None
        known = {field.alias for field in cls.model_fields.values()}
        return policy, tuple(sorted(values.keys() - known))

    def render(self) -> str:
        """Return the file's text: the same policy always gives the same bytes."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"
