"""Who calls: the tenant behind a request, and what it may have.

| `identifyBy` | tenant | believed |
|---|---|---|
| no `tenants` | `default` | everyone |
| `ApiKey` | owner of the key in `Authorization: Bearer` or `x-api-key` | whoever has the key |
| `Header` | value of the header | a connection from a trusted proxy |
| `ClientAddress` | the client's address, see `address` | `X-Forwarded-For` only through trusted proxies |
| any | `x-penstock-tenant`, `x-penstock-client` beside `x-penstock-hop` | a connection from a peer of the signed list |

Another replica of the backend has identified the caller already and says as whom; its word stands above the rule. From
anybody else these headers say nothing, except that a hop mark forbids another hop: that is no harm but to its sender.

A caller whom the rule does not name is unknown: it gets the policy's `default`, as the tenant `default`, or 401.
Whatever is said in a way that could mean two things names nobody: two credentials of different tenants, or a header
that is there twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from penstock.admission.quotas import UNKNOWN_TENANT
from penstock.api.tenants import IdentifyBy, TenantLimits, TenantsPolicy
from penstock.limiter.address import TrustedProxies, canonical, forwarded_client, shown
from penstock.limiter.head import RequestHead
from penstock.limiter.keys import KeyFolder
from penstock.limiter.refusal import Reason, Refused

EVERYONE = UNKNOWN_TENANT
"""The tenant of callers that no rule names."""

PRIORITY_HEADER = b"x-penstock-priority"
HOP_HEADER = b"x-penstock-hop"
TENANT_HEADER = b"x-penstock-tenant"
CLIENT_HEADER = b"x-penstock-client"
CACHED_TENANTS = 4096

_NAME = re.compile(rb"[A-Za-z0-9_.:@/-]{1,253}")


class Identity(msgspec.Struct, frozen=True):
    """Who calls.

    Attributes:
        tenant: Name of the tenant.
        address: Address of the client, as quotas and logs know it.
        limits: What the tenant may have.
        by_proxy: Whether the connection comes from a trusted proxy, whose other headers count too.
        hopped: Whether the request must not be sent on to another replica: it says that it was already.
    """

    tenant: str
    address: str
    limits: TenantLimits
    by_proxy: bool = False
    hopped: bool = False

    def priority_class(self, head: RequestHead) -> str:
        """Return the priority class a request asks for and may have, else the tenant's own.

        Whether such a class exists is for the caller to find out.
        """
        asked = head.values.get(PRIORITY_HEADER)
        if asked is not None and _NAME.fullmatch(asked[0]):
            name = asked[0].decode("ascii")
            if self.by_proxy or name in self.limits.named_classes:
                return name
        return self.limits.priority_class


class Identifier:
    """Identifies callers by the policy in force."""

    def __init__(self, policy: TenantsPolicy | None = None, *, keys: KeyFolder | None = None) -> None:
        """Begin with a policy.

        Args:
            policy: Who the callers are; None when all are one tenant.
            keys: Their API keys; None when none are mounted.
        """
        self._keys = keys
        self._peers: frozenset[str] = frozenset()
        self.reconfigure(policy)

    def trust_peers(self, addresses: Iterable[str]) -> None:
        """Believe what these addresses say of callers they have identified, and no others; canonical spellings."""
        self._peers = frozenset(addresses)

    def reconfigure(self, policy: TenantsPolicy | None) -> None:
        """Follow a change of the policy."""
        self._policy = policy
        self._proxies = TrustedProxies(policy.trusted_proxies) if policy and policy.trusted_proxies else None
        self._limits: dict[str, TenantLimits] = {}
        self._header = (policy.header or "").lower().encode() if policy else b""

    def identify(self, head: RequestHead, peer: str, *, refuse: bool = True) -> Identity:
        """Say who calls.

        Args:
            head: Head of the request.
            peer: Address of its connection.
            refuse: Whether callers whom nothing names are refused if the policy says so.

        Raises:
            Refused: nobody that is let in.
        """
        policy = self._policy
        hopped = HOP_HEADER in head.values
        told = self._told_by_peer(head) if hopped and self._peers and canonical(peer) in self._peers else None
        if policy is None:
            return Identity(EVERYONE, told[1] if told else shown(peer), _NO_LIMITS, hopped=hopped)
        if told is not None:
            tenant, address = told
            if tenant != EVERYONE:
                limits = self._limits.get(tenant) or self._limits_of(policy, tenant)
                return Identity(tenant, address, limits, hopped=True)
            if policy.default is None and refuse:
                _unknown(policy)
            return Identity(EVERYONE, address, policy.default or _NO_LIMITS, hopped=True)
        return self._by_rule(policy, head, peer, hopped=hopped, refuse=refuse)

    def _by_rule(self, policy: TenantsPolicy, head: RequestHead, peer: str, *, hopped: bool, refuse: bool) -> Identity:
        by_proxy, address = False, shown(peer)
        if self._proxies is not None and self._proxies.trusts(peer):
            by_proxy, address = True, self._proxies.client(peer, head.values.get(b"x-forwarded-for", ()))
        if policy.identify_by is IdentifyBy.API_KEY:
            tenant = self._key_owner(head)
        elif policy.identify_by is IdentifyBy.HEADER:
            tenant = self._named(head) if by_proxy else None
        else:
            tenant = address
        if tenant is not None:
            limits = self._limits.get(tenant) or self._limits_of(policy, tenant)
            return Identity(tenant, address, limits, by_proxy, hopped)
        if policy.default is None and refuse:
            _unknown(policy)
        return Identity(EVERYONE, address, policy.default or _NO_LIMITS, by_proxy, hopped)

    @staticmethod
    def _told_by_peer(head: RequestHead) -> tuple[str, str] | None:
        """Return the tenant and the client that a peer names; None unless it names exactly one of each."""
        tenants, clients = head.values.get(TENANT_HEADER, ()), head.values.get(CLIENT_HEADER, ())
        if len(tenants) != 1 or len(clients) != 1 or not _NAME.fullmatch(tenants[0]):
            return None
        client = forwarded_client(clients[0])
        return None if client is None else (tenants[0].decode("ascii"), client)

    def _named(self, head: RequestHead) -> str | None:
        """Return the tenant that the policy's header names."""
        named = head.values.get(self._header, ())
        return named[0].decode("ascii") if len(named) == 1 and _NAME.fullmatch(named[0]) else None

    def _key_owner(self, head: RequestHead) -> str | None:
        """Return whose keys a request shows: all that are known must belong to one tenant."""
        if self._keys is None:
            return None
        shown_keys = list(head.values.get(b"x-api-key", ()))
        for value in head.values.get(b"authorization", ()):
            words = value.split()
            if len(words) == 2 and words[0].lower() == b"bearer":
                shown_keys.append(words[1])
        owners = set()
        for key in shown_keys:
            owners.add(self._keys.tenant(key))
        owners.discard(None)
        return owners.pop() if len(owners) == 1 else None

    def _limits_of(self, policy: TenantsPolicy, tenant: str) -> TenantLimits:
        """Find a tenant's limits and remember them: looking through all patterns for every request would be felt."""
        if len(self._limits) >= CACHED_TENANTS:
            self._limits.clear()
        limits = self._limits[tenant] = policy.limits_of(tenant)
        return limits


_NO_LIMITS = TenantLimits()

_INSTEAD = {
    IdentifyBy.API_KEY: "Send a known API key in `Authorization: Bearer` or `x-api-key`.",
    IdentifyBy.HEADER: "Callers are identified by a proxy in front of this replica; send the request through it.",
    IdentifyBy.CLIENT_ADDRESS: "The client's address is not known.",
}


def _unknown(policy: TenantsPolicy) -> NoReturn:
    raise Refused(Reason.UNAUTHORIZED, f"The caller is not known here. {_INSTEAD[policy.identify_by]}")
