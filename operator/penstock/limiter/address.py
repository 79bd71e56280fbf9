"""Client addresses: which one counts, when requests come through proxies.

Each proxy appends the address it was called from to `X-Forwarded-For`. Everything to the left of the first proxy that
is not trusted may be made up by the client, so the list is read from its right end: the client is the last address
that is not a trusted proxy. The header counts only when the connection itself comes from a trusted proxy.

An IPv4 address written as IPv6 is the IPv4 address. An IPv6 client is its /64: that is what one network gets, and
anybody in it can have any of its addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

HOP_LIMIT = 32
"""Entries of the header that are looked at, from the right."""

CLIENT_PREFIX_BITS = 64
_MAPPED_PREFIX_BITS = 96
_CACHED_ADDRESSES = 4096

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class TrustedProxies:
    """The proxies whose word counts."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(_network(text) for text in networks)
        self._contains = lru_cache(_CACHED_ADDRESSES)(self._find)

    def trusts(self, peer: str) -> bool:
        """Say whether a connection's own address is that of a trusted proxy."""
        return bool(self._networks) and self._contains(peer)

    def client(self, peer: str, forwarded_for: Sequence[bytes]) -> str:
        """Return the address of the client that a request comes from.

        Args:
            peer: Address of the connection.
            forwarded_for: Values of all `X-Forwarded-For` headers, in their order.
        """
        nearest = peer
        if self.trusts(peer):
            hops = b",".join(forwarded_for).rsplit(b",", HOP_LIMIT)[-HOP_LIMIT:]
            for hop in reversed(hops):
                text = _bare(hop.decode("latin-1"))
                if _parse(text) is None:
                    break  # the proxy does not say where it was called from: then it is the client itself
                nearest = text
                if not self._contains(text):
                    break
        return shown(nearest)

    def _find(self, text: str) -> bool:
        address = _parse(text)
        return address is not None and any(address in network for network in self._networks)


@lru_cache(_CACHED_ADDRESSES)
def shown(text: str) -> str:
    """Return an address as it identifies a client: IPv4 as it is, IPv6 as its /64; other text as it is."""
    address = _parse(text)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), CLIENT_PREFIX_BITS), strict=False))
    return text if address is None else str(address)


@lru_cache(_CACHED_ADDRESSES)
def canonical(text: str) -> str:
    """Return an address in the one spelling by which addresses are compared; other text as it is."""
    return str(_parse(text) or text)


def forwarded_client(value: bytes) -> str | None:
    """Return the client that a peer names, as `shown` spelled it there; None when it is no client."""
    text = value.decode("latin-1")
    if shown(text) == text and _parse(text) is not None:
        return text
    address, slash, bits = text.partition("/")
    return text if slash and bits == str(CLIENT_PREFIX_BITS) and shown(address) == text else None


def _parse(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(text: str) -> Network:
    network = ipaddress.ip_network(text, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= _MAPPED_PREFIX_BITS:
        return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX_BITS), strict=False)
    return network


def _bare(hop: str) -> str:
    """Return an entry of the header without port, brackets and blanks."""
    hop = hop.strip(' \t"')
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
