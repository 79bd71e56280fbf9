"""Who called the API server, for what, and what came of it: its audit log, switched on and read.

    log = AuditLog(path)
    start = log.position()
    ...
    for call in log.calls(start): print(call.user, call.verb, call.resource, call.code)

What is logged is every write by anybody, and everything that a service account of Penstock's own namespace asks for:
that is enough to see who writes when nothing should be written, and to hold the operator's calls against its rights.
Bodies are never logged. The API server writes an entry when it answers (a watch: when it begins), so an entry is in
the file before the client has the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

LOG_NAME = "audit.log"
OPERATOR_NAMESPACE = "penstock-system"

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
UNAUTHORIZED = 401
LARGEST_FILE_MEBIBYTES = 4096
"""Far beyond any run: a log that is rotated in the middle of one would be read from its second half."""

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": sorted(WRITES)},
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{OPERATOR_NAMESPACE}"]},
        {"level": "None"},
    ],
}


def server_arguments(policy: Path, log: Path) -> list[str]:
    """Write the policy and return what the API server needs on its command line.

    Args:
        policy: File that the policy is written to.
        log: File that the API server writes to.
    """
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(json.dumps(POLICY, indent=2))
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        f"--audit-log-maxsize={LARGEST_FILE_MEBIBYTES}",
    ]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request and its answer.

    Attributes:
        time: When it arrived.
        user: `system:serviceaccount:NAMESPACE:NAME` for a service account.
        agent: What the client calls itself.
        verb: As RBAC names it: get, list, watch, create, update, patch, delete, deletecollection. For a path that is no
            resource: the HTTP method in lower case.
        group: API group, empty for the core group.
        resource: As RBAC names it, `llmbackends/status`; empty for a path that is no resource.
        namespace: Empty for cluster-scoped objects and for lists of all namespaces.
        name: Of the object, empty for lists and for objects that are named by the server.
        path: Path and query as they were sent.
        code: HTTP status of the answer.
        decision: What the authoriser said: `allow` or `forbid`; empty when nobody was recognised.
    """

    time: datetime
    user: str
    agent: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    path: str
    code: int
    decision: str

    @property
    def denied(self) -> bool:
        """Whether the caller had no right to it; a refusal by a quota or a policy is none."""
        return self.code == UNAUTHORIZED or self.decision == "forbid"


class AuditLog:
    """The audit log of one API server."""

    def __init__(self, path: Path) -> None:
        """Refer to a log; it may not exist before the first call."""
        self.path = path

    def position(self) -> int:
        """Return where the log ends now: what `calls` reads from there on has happened since."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def calls(
        self,
        since: int = 0,
        *,
        user: str | None = None,
        verbs: Iterable[str] | None = None,
        resource: str | None = None,
    ) -> list[Call]:
        """Return the calls in the order of their answers, each once.

        Args:
            since: A position; 0 is the beginning.
            user: Only this user's.
            verbs: Only these.
            resource: Only this resource, `pods` or `llmbackends/status`.
        """
        wanted = None if verbs is None else frozenset(verbs)
        return [
            call
            for call in self.latest(since)[0]
            if user in (None, call.user)
            and (wanted is None or call.verb in wanted)
            and resource in (None, call.resource)
        ]

    def writes(self, since: int = 0, *, user: str | None = None) -> list[Call]:
        """Return the calls that ask for a change, refused ones included."""
        return self.calls(since, user=user, verbs=WRITES)

    def latest(self, since: int) -> tuple[list[Call], int]:
        """Return the calls since a position, and the position up to which that is: for whoever keeps looking."""
        if not self.path.exists():
            return [], since
        with self.path.open("rb") as file:
            file.seek(since)
            # The last line may be in the middle of being written.
            complete, end, _ = file.read().rpartition(b"\n")
        # A watch has two entries, at its begin and at its end.
        entries = (json.loads(line) for line in complete.splitlines())
        calls = {entry["auditID"]: _call(entry) for entry in entries}
        return list(calls.values()), since + len(complete) + len(end)


def _call(entry: dict[str, Any]) -> Call:
    reference = entry.get("objectRef", {})
    subresource = reference.get("subresource")
    return Call(
        time=datetime.fromisoformat(entry["requestReceivedTimestamp"]),
        user=entry["user"].get("username", ""),  # a caller that could not say who it is has no name
        agent=entry.get("userAgent", ""),
        verb=entry["verb"],
        group=reference.get("apiGroup", ""),
        resource=reference.get("resource", "") + (f"/{subresource}" if subresource else ""),
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        path=entry["requestURI"],
        code=entry.get("responseStatus", {}).get("code", 0),
        decision=entry.get("annotations", {}).get("authorization.k8s.io/decision", ""),
    )
