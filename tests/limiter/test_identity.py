"""Identity: each rule believes whom it should, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.tenants import IdentifyBy, TenantClass, TenantLimits, TenantsPolicy
from penstock.limiter.address import shown
from penstock.limiter.head import RequestHead, parse_request
from penstock.limiter.identity import CACHED_TENANTS, EVERYONE, Identifier, Identity
from penstock.limiter.keys import KeyFolder
from penstock.limiter.refusal import Reason, Refused

PROXY, STRANGER = "10.0.0.1", "203.0.113.9"
GUEST = TenantLimits(weight=2)
GOLD = TenantClass(name="gold", tenants=("team-a", "vip-*"), weight=9, allowed_priority_classes=("interactive",))


def head(*headers: tuple[str, str]) -> RequestHead:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return parse_request(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode("latin-1"))


def policy(by: IdentifyBy, *, default: TenantLimits | None = None) -> TenantsPolicy:
    return TenantsPolicy(
        identify_by=by,
        header="X-Tenant" if by is IdentifyBy.HEADER else None,
        trusted_proxies=("10.0.0.0/8",),
        default=default,
        classes=(GOLD,),
    )


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    (tmp_path / "team-a").write_text("key-a\n")
    (tmp_path / "team-b").write_text("key-b\n")
    folder = KeyFolder(tmp_path)
    folder.refresh()
    return folder


def refused(identifier: Identifier, request: RequestHead, peer: str = STRANGER) -> str:
    with pytest.raises(Refused) as caught:
        identifier.identify(request, peer)
    assert caught.value.reason is Reason.UNAUTHORIZED
    return caught.value.message


def test_without_tenants_everyone_is_one_tenant_and_no_header_counts() -> None:
    request = head(
        ("Authorization", "Bearer x"), ("X-Forwarded-For", "1.2.3.4"), ("x-penstock-priority", "interactive")
    )
    identity = Identifier().identify(request, STRANGER)
    assert identity == Identity(EVERYONE, STRANGER, TenantLimits())
    assert identity.priority_class(request) == "normal"


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        pytest.param([("Authorization", "Bearer key-a")], "team-a", id="bearer"),
        pytest.param([("authorization", "bearer   key-b")], "team-b", id="however it is written"),
        pytest.param([("X-Api-Key", "key-b")], "team-b", id="anthropic's header"),
        pytest.param([("Authorization", "Bearer EMPTY"), ("x-api-key", "key-a")], "team-a", id="one of them is known"),
        pytest.param([("Authorization", "Bearer key-a"), ("x-api-key", "key-a")], "team-a", id="the same twice"),
        pytest.param([("Authorization", "Bearer key-a"), ("x-api-key", "key-b")], None, id="two tenants' keys"),
        pytest.param([("Authorization", "Bearer key-a"), ("Authorization", "Bearer key-b")], None, id="two headers"),
        pytest.param([("Authorization", "Basic key-a")], None, id="another scheme"),
        pytest.param([("Authorization", "key-a")], None, id="no scheme"),
        pytest.param([("Authorization", "Bearer key-a key-b")], None, id="two in one"),
        pytest.param([("Authorization", "Bearer ")], None, id="an empty key"),
        pytest.param([("X-Tenant", "team-a")], None, id="a header that names a tenant"),
        pytest.param([("x-penstock-tenant", "team-a")], None, id="a forwarded identity"),
        pytest.param([], None, id="no key"),
    ],
)
@pytest.mark.parametrize("peer", [PROXY, STRANGER])
def test_a_key_names_its_owner_and_nothing_else_does(
    keys: KeyFolder, headers: list[tuple[str, str]], tenant: str | None, peer: str
) -> None:
    identifier = Identifier(policy(IdentifyBy.API_KEY), keys=keys)
    if tenant is None:
        message = refused(identifier, head(*headers), peer)
        assert "API key" in message
        assert "key-" not in message
    else:
        assert identifier.identify(head(*headers), peer).tenant == tenant


def test_without_mounted_keys_nobody_is_known() -> None:
    refused(Identifier(policy(IdentifyBy.API_KEY)), head(("x-api-key", "key-a")))


@pytest.mark.parametrize(
    ("peer", "headers", "tenant"),
    [
        pytest.param(PROXY, [("X-Tenant", "team-a")], "team-a", id="from a trusted proxy"),
        pytest.param("::ffff:10.0.0.1", [("x-tenant", "team-a")], "team-a", id="over a dual-stack socket"),
        pytest.param(STRANGER, [("X-Tenant", "team-a")], None, id="from anyone else"),
        pytest.param(
            STRANGER,
            [("X-Forwarded-For", PROXY), ("X-Tenant", "team-a")],
            None,
            id="from one who claims a proxy's address",
        ),
        pytest.param(PROXY, [("X-Tenant", "team-b"), ("X-Tenant", "team-a")], None, id="twice"),
        pytest.param(PROXY, [("X-Tenant", "team-a, team-b")], None, id="a list"),
        pytest.param(PROXY, [("X-Tenant", "a" * 300)], None, id="a name without end"),
        pytest.param(PROXY, [("X-Tenant", "")], None, id="an empty name"),
        pytest.param(PROXY, [("X_Tenant", "team-a")], None, id="a name that only looks alike"),
        pytest.param(PROXY, [], None, id="no header"),
    ],
)
def test_a_header_names_the_tenant_only_from_a_trusted_proxy(
    peer: str, headers: list[tuple[str, str]], tenant: str | None
) -> None:
    identifier = Identifier(policy(IdentifyBy.HEADER))
    if tenant is None:
        refused(identifier, head(*headers), peer)
    else:
        assert identifier.identify(head(*headers), peer).tenant == tenant


@pytest.mark.parametrize(
    ("peer", "headers", "tenant"),
    [
        pytest.param(STRANGER, [], STRANGER, id="direct"),
        pytest.param(STRANGER, [("X-Forwarded-For", "1.2.3.4")], STRANGER, id="made up"),
        pytest.param(PROXY, [("X-Forwarded-For", "1.2.3.4, 198.51.100.7")], "198.51.100.7", id="through a proxy"),
        pytest.param("2001:db8::5", [], "2001:db8::/64", id="IPv6"),
    ],
)
def test_an_address_is_believed_as_far_as_trusted_proxies_go(
    peer: str, headers: list[tuple[str, str]], tenant: str
) -> None:
    identity = Identifier(policy(IdentifyBy.CLIENT_ADDRESS)).identify(head(*headers), peer)
    assert (identity.tenant, identity.address) == (tenant, tenant)


def test_the_address_is_known_beside_the_key(keys: KeyFolder) -> None:
    request = head(("x-api-key", "key-a"), ("X-Forwarded-For", "198.51.100.7"))
    identifier = Identifier(policy(IdentifyBy.API_KEY), keys=keys)
    assert identifier.identify(request, PROXY) == Identity("team-a", "198.51.100.7", GOLD, by_proxy=True)
    assert identifier.identify(request, STRANGER) == Identity("team-a", STRANGER, GOLD)


def test_unknown_callers_get_the_default_and_never_a_class(keys: KeyFolder) -> None:
    everyone = TenantClass(name="all", tenants=("*",), weight=7)
    lenient = policy(IdentifyBy.API_KEY, default=GUEST).model_copy(update={"classes": (everyone,)})
    identifier = Identifier(lenient, keys=keys)
    assert identifier.identify(head(("x-api-key", "nobody's")), STRANGER) == Identity(EVERYONE, STRANGER, GUEST)
    assert identifier.identify(head(("x-api-key", "key-b")), STRANGER).limits == everyone


def test_a_change_of_the_policy_counts_at_once(keys: KeyFolder) -> None:
    identifier = Identifier(policy(IdentifyBy.API_KEY), keys=keys)
    request = head(("x-api-key", "key-a"))
    assert identifier.identify(request, STRANGER).limits.weight == 9
    changed = GOLD.model_copy(update={"weight": 4})
    identifier.reconfigure(policy(IdentifyBy.API_KEY).model_copy(update={"classes": (changed,)}))
    assert identifier.identify(request, STRANGER).limits.weight == 4
    identifier.reconfigure(None)
    assert identifier.identify(request, STRANGER).tenant == EVERYONE


@pytest.mark.parametrize(
    ("key", "peer", "asked", "served"),
    [
        pytest.param("key-a", STRANGER, "interactive", "interactive", id="a class the tenant may choose"),
        pytest.param("key-a", STRANGER, "normal", "normal", id="its own"),
        pytest.param("key-b", STRANGER, "interactive", "normal", id="a class it may not choose"),
        pytest.param("key-b", PROXY, "interactive", "interactive", id="a trusted proxy may choose for anyone"),
        pytest.param("key-a", STRANGER, "a b", "normal", id="no name at all"),
        pytest.param("key-a", STRANGER, None, "normal", id="nothing asked"),
    ],
)
def test_who_may_choose_a_priority_class(keys: KeyFolder, key: str, peer: str, asked: str | None, served: str) -> None:
    request = head(("x-api-key", key), *([("X-Penstock-Priority", asked)] if asked else []))
    identity = Identifier(policy(IdentifyBy.API_KEY), keys=keys).identify(request, peer)
    assert identity.priority_class(request) == served


def test_any_number_of_addresses_costs_bounded_memory() -> None:
    identifier = Identifier(policy(IdentifyBy.CLIENT_ADDRESS))
    for number in range(CACHED_TENANTS + 10):
        identifier.identify(head(), f"172.16.{number // 256}.{number % 256}")
    assert len(identifier._limits) <= CACHED_TENANTS


# ---- what a peer says

PEER = "10.9.0.2"
TOLD = (("x-penstock-hop", "1"), ("x-penstock-tenant", "team-a"), ("x-penstock-client", "198.51.100.7"))


def told(**changed: object) -> list[tuple[str, str]]:
    """What a peer sends, with values changed, or left out when None, or repeated when several."""
    found = []
    for name, value in TOLD:
        new = changed.get(name.removeprefix("x-penstock-"), value)
        found += [(name, one) for one in (new if isinstance(new, list) else [new]) if one is not None]
    return found


def believing(by: IdentifyBy | None, *, keys: KeyFolder | None = None, default: TenantLimits | None = None):
    rule = None if by is None else policy(by, default=default).model_copy(update={"trusted_proxies": (PROXY,)})
    identifier = Identifier(rule, keys=keys)
    identifier.trust_peers([PEER, "fd00::2"])
    return identifier


@pytest.mark.parametrize("by", IdentifyBy)
@pytest.mark.parametrize("peer", [PEER, f"::ffff:{PEER}", "fd00:0::2"], ids=["IPv4", "dual-stack", "IPv6"])
def test_a_peer_says_for_whom_it_asks_whatever_the_rule(by: IdentifyBy, peer: str) -> None:
    assert believing(by).identify(head(*told()), peer) == Identity("team-a", "198.51.100.7", GOLD, hopped=True)


@pytest.mark.parametrize("by", IdentifyBy)
@pytest.mark.parametrize("peer", [STRANGER, PROXY, "10.9.0.3", "fd00::3", "", "10.9.0.2.evil"])
def test_nobody_else_does_and_a_hop_mark_only_forbids_another_hop(by: IdentifyBy, peer: str) -> None:
    identity = believing(by, default=GUEST).identify(head(*told()), peer)
    assert identity.tenant in {EVERYONE, shown(peer)}
    assert identity.address == shown(peer)
    assert identity.hopped
    assert not believing(by, default=GUEST).identify(head(), peer).hopped


def test_a_key_counts_beside_what_a_stranger_says(keys: KeyFolder) -> None:
    request = head(*told(), ("x-api-key", "key-b"))
    identifier = believing(IdentifyBy.API_KEY, keys=keys)
    assert identifier.identify(request, STRANGER).tenant == "team-b"
    assert identifier.identify(request, PEER).tenant == "team-a"


def test_a_claimed_address_makes_no_peer() -> None:
    request = head(*told(), ("X-Forwarded-For", PEER))
    refused(believing(IdentifyBy.HEADER), request, STRANGER)
    refused(believing(IdentifyBy.HEADER), request, PROXY)


@pytest.mark.parametrize(
    "changed",
    [
        {"hop": None},
        {"tenant": None},
        {"client": None},
        {"tenant": ["team-a", "team-b"]},
        {"client": ["198.51.100.7", "198.51.100.8"]},
        {"tenant": "team a"},
        {"tenant": ""},
        {"client": "somebody"},
        {"client": "198.51.100.7, 10.0.0.1"},
        {"client": "2001:db8::1"},
        {"client": "2001:db8::1/64"},
        {"client": "198.51.100.0/24"},
        {"client": "/64"},
    ],
    ids=str,
)
def test_what_a_peer_says_in_part_or_twice_names_nobody(changed: dict[str, object]) -> None:
    refused(believing(IdentifyBy.HEADER), head(*told(**changed)), PEER)


def test_a_peer_names_an_ipv6_client_by_its_network() -> None:
    identity = believing(IdentifyBy.CLIENT_ADDRESS).identify(
        head(*told(client="2001:db8::/64", tenant="2001:db8::/64")), PEER
    )
    assert (identity.tenant, identity.address) == ("2001:db8::/64", "2001:db8::/64")


def test_without_tenants_a_peer_names_the_client_only() -> None:
    assert believing(None).identify(head(*told()), PEER) == Identity(
        EVERYONE, "198.51.100.7", TenantLimits(), hopped=True
    )
    assert believing(None).identify(head(*told()), STRANGER) == Identity(
        EVERYONE, STRANGER, TenantLimits(), hopped=True
    )


def test_an_unknown_caller_of_a_peer_is_unknown_here() -> None:
    request = head(*told(tenant=EVERYONE))
    assert believing(IdentifyBy.HEADER, default=GUEST).identify(request, PEER).limits == GUEST
    refused(believing(IdentifyBy.HEADER), request, PEER)


def test_a_peer_s_word_does_not_choose_a_class_that_its_tenant_may_not_have() -> None:
    request = head(*told(tenant="team-b"), ("x-penstock-priority", "interactive"))
    assert believing(IdentifyBy.HEADER).identify(request, PEER).priority_class(request) == "normal"


def test_who_is_no_peer_any_more_is_not_believed() -> None:
    identifier = believing(IdentifyBy.HEADER)
    identifier.trust_peers(())
    refused(identifier, head(*told()), PEER)


@pytest.mark.parametrize("value", ["true", "yes", "1"])
def test_nobody_chooses_their_own_limits_by_any_other_header_of_ours(value: str) -> None:
    names = ("x-penstock-reason", "x-penstock-degraded", "x-penstock-served-by", "x-penstock-no-fallback")
    request = head(*((name, value) for name in names))
    assert Identifier().identify(request, STRANGER) == Identity(EVERYONE, STRANGER, TenantLimits())
