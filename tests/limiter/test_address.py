"""Client addresses: nobody chooses their own by writing it down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.limiter.address import HOP_LIMIT, TrustedProxies, canonical, forwarded_client, shown

PROXIES = TrustedProxies(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        pytest.param("203.0.113.9", [], "203.0.113.9", id="no proxy"),
        pytest.param("203.0.113.9", [b"1.2.3.4"], "203.0.113.9", id="a stranger's header does not count"),
        pytest.param("10.0.0.1", [], "10.0.0.1", id="the proxy itself"),
        pytest.param("10.0.0.1", [b"203.0.113.9"], "203.0.113.9", id="through a proxy"),
        pytest.param(
            "10.0.0.1", [b"1.2.3.4, 203.0.113.9"], "203.0.113.9", id="what the client put in front is ignored"
        ),
        pytest.param("10.0.0.1", [b"10.1.1.1, 203.0.113.9"], "203.0.113.9", id="even when it looks trusted"),
        pytest.param("10.0.0.1", [b"1.2.3.4,203.0.113.9,10.2.2.2"], "203.0.113.9", id="through two proxies"),
        pytest.param("10.0.0.1", [b"1.2.3.4", b"203.0.113.9"], "203.0.113.9", id="two headers are one list"),
        pytest.param("10.0.0.1", [b"10.3.3.3, 10.2.2.2"], "10.3.3.3", id="a client inside of the trusted network"),
        pytest.param("10.0.0.1", [b"203.0.113.9:5123"], "203.0.113.9", id="with a port"),
        pytest.param("10.0.0.1", [b'"[2001:db8::1]:5123"'], "2001:db8::/64", id="IPv6 with brackets and port"),
        pytest.param("10.0.0.1", [b"1.2.3.4, unknown"], "10.0.0.1", id="a proxy that does not say"),
        pytest.param("10.0.0.1", [b"1.2.3.4, "], "10.0.0.1", id="an empty entry"),
        pytest.param("10.0.0.1", [b"\xff\xfe"], "10.0.0.1", id="bytes that are no address"),
        pytest.param("::ffff:10.0.0.1", [b"::ffff:203.0.113.9"], "203.0.113.9", id="IPv4 written as IPv6"),
        pytest.param("fd00::1", [b"2001:db8:1:2:3::4"], "2001:db8:1:2::/64", id="an IPv6 client is its network"),
        pytest.param("fe80::1%eth0", [], "fe80::/64", id="an address with a zone"),
    ],
)
def test_the_client_is_the_last_address_that_no_trusted_proxy_has(
    peer: str, forwarded: list[bytes], client: str
) -> None:
    assert PROXIES.client(peer, forwarded) == client


def test_without_trusted_proxies_only_the_connection_counts() -> None:
    assert TrustedProxies([]).client("10.0.0.1", [b"203.0.113.9"]) == "10.0.0.1"
    assert not TrustedProxies([]).trusts("10.0.0.1")


def test_a_network_of_mapped_addresses_is_the_ipv4_network() -> None:
    proxies = TrustedProxies(["::ffff:10.0.0.0/104"])
    assert proxies.trusts("10.9.9.9")
    assert proxies.trusts("::ffff:10.9.9.9")
    assert not proxies.trusts("11.0.0.1")


def test_one_network_is_one_client_and_its_neighbour_another() -> None:
    assert shown("2001:db8::1") == shown("2001:db8::ffff:1") != shown("2001:db8:0:1::1")
    assert shown("not an address") == "not an address"


def test_a_list_without_end_costs_no_more_than_its_end() -> None:
    assert PROXIES.client("10.0.0.1", [b"203.0.113.9," + b"10.1.1.1," * HOP_LIMIT * 1000 + b"10.1.1.2"]) == "10.1.1.1"


@given(
    st.lists(st.ip_addresses().map(lambda address: str(address).encode()) | st.binary(max_size=20), max_size=6),
    st.ip_addresses(v=4).filter(lambda address: not str(address).startswith("10.")),
)
def test_no_header_makes_a_client_somebody_else(made_up: list[bytes], true: object) -> None:
    forwarded = b",".join([*made_up, str(true).encode()])
    assert PROXIES.client("10.0.0.1", [forwarded]) == str(true)
    assert PROXIES.client(str(true), [forwarded]) == str(true)


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"198.51.100.7", "198.51.100.7"),
        (b"2001:db8::/64", "2001:db8::/64"),
        (b"2001:db8::1", None),
        (b"2001:db8::1/64", None),
        (b"2001:db8::/48", None),
        (b"198.51.100.0/24", None),
        (b"::ffff:198.51.100.7", None),
        (b"a", None),
        (b"", None),
        (b"/64", None),
        (b"\xff", None),
    ],
)
def test_a_forwarded_client_is_spelled_as_replicas_spell_it(value: bytes, client: str | None) -> None:
    assert forwarded_client(value) == client


@given(st.ip_addresses())
def test_what_one_replica_shows_another_takes(address: object) -> None:
    assert forwarded_client(shown(str(address)).encode()) == shown(str(address))


def test_addresses_compare_in_one_spelling() -> None:
    assert canonical("::ffff:10.0.0.1") == canonical("10.0.0.1") == "10.0.0.1"
    assert canonical("FD00:0::1") == canonical("fd00::1")
    assert canonical("nothing") == "nothing"
