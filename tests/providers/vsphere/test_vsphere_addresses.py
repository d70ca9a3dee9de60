"""The addresses that Nodes get of those that VMware Tools tell."""

import base64
import gzip
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import pytest
import yaml

from ccm.model.cloud import Network, read_network
from ccm.providers.vsphere.addresses import (
    MAX_STATIC,
    REMEMBERED,
    GuestAddress,
    NoAddress,
    addresses_of,
    sorted_by_metadata,
    static_addresses,
)
from ccm.providers.vsphere.config import AddressRules, VsphereConfig
from ccm.providers.vsphere.inventory import MAX_METADATA, Nic
from tests.labs.vsphere.lab import Lab, nic
from tests.providers.vsphere.conftest import Started, node_of

NONE, NO_RULES = ("", ""), AddressRules()
INTERNAL, EXTERNAL = "InternalIP", "ExternalIP"


def networks(*cidrs: str) -> tuple[Network, ...]:
    return tuple(found for cidr in cidrs if (found := read_network(cidr)))


def chosen(
    nics: Sequence[Nic],
    internal: AddressRules = NO_RULES,
    external: AddressRules = NO_RULES,
    families: Sequence[str] = ("ipv4",),
    metadata: tuple[str, str] = NONE,
) -> list[tuple[str, str]]:
    """Types and addresses, after the host name."""
    config = VsphereConfig((), internal=internal, external=external)
    host, *rest = addresses_of("node-1", nics, metadata, config, families)
    assert (host.type, host.address) == ("Hostname", "node-1")
    return [(str(one.type), one.address) for one in rest]


A = Nic("Internal", ("10.0.0.5", "fd00::5"), 4000)
B = Nic("DMZ", ("192.0.2.7", "2001:db8::7"), 4001)


def test_without_rules_the_first_address_is_both() -> None:
    assert chosen([A, B]) == [(INTERNAL, "10.0.0.5"), (EXTERNAL, "10.0.0.5")]


def test_bridges_and_tunnels_are_left_out() -> None:
    """VS32."""
    bridge = Nic("", ("172.17.0.1", "10.244.0.1"), -1)
    assert chosen([bridge, B])[0] == (INTERNAL, "192.0.2.7")


@pytest.mark.parametrize(
    "addresses",
    [
        (),
        ("fe80::1", "169.254.1.1", "127.0.0.1", "224.0.0.1", "0.0.0.0", "x", ""),
        ("2001:db8::1%\x1b[31m", f"2001:db8::1%{'x' * 250_000}"),
    ],
    ids=["none", "own", "zones"],
)
def test_addresses_that_no_one_reaches_are_none(addresses: tuple[str, ...]) -> None:
    """VS33."""
    with pytest.raises(NoAddress, match="report no reachable address"):
        chosen([Nic("", addresses, 4000)])


@pytest.mark.parametrize("nics", [[A, B], [B, A]], ids=["as-is", "turned"])
def test_networks_choose_whatever_the_order(nics: list[Nic]) -> None:
    """VS36."""
    internal = AddressRules(networks("10.0.0.0/8"))
    external = AddressRules(networks("198.51.100.0/24", "192.0.2.0/24"))
    assert chosen(nics, internal, external) == [(INTERNAL, "10.0.0.5"), (EXTERNAL, "192.0.2.7")]


def test_where_one_rule_fits_only_that_one_is_reported() -> None:
    """VS37: as upstream does."""
    internal, external = AddressRules(networks("172.16.0.0/12")), AddressRules((), "dmz")
    assert chosen([A, B], internal, external) == [(EXTERNAL, "192.0.2.7")]


def test_names_of_port_groups_count_in_any_case_and_after_networks() -> None:
    """VS38."""
    internal, external = AddressRules((), "dmz"), AddressRules(networks("10.0.0.0/8"), "DMZ")
    assert chosen([A, B], internal, external) == [(INTERNAL, "192.0.2.7"), (EXTERNAL, "10.0.0.5")]


def test_excluded_networks_leave_others_or_say_so() -> None:
    """VS39."""
    excluded = AddressRules((), "", networks("10.0.0.0/8"))
    assert chosen([A, B], excluded, excluded)[0] == (INTERNAL, "192.0.2.7")
    with pytest.raises(NoAddress, match="the configuration excludes all its ipv4 addresses"):
        chosen([A], excluded, excluded)
    assert chosen([A], excluded) == [(EXTERNAL, "10.0.0.5")]


def test_families_come_in_the_configured_order() -> None:
    """VS40, VS41."""
    assert chosen([A], families=("ipv6", "ipv4")) == [
        (INTERNAL, "fd00::5"),
        (EXTERNAL, "fd00::5"),
        (INTERNAL, "10.0.0.5"),
        (EXTERNAL, "10.0.0.5"),
    ]
    with pytest.raises(NoAddress, match="it has no ipv6 address"):
        chosen([Nic("", ("10.0.0.5",), 4000)], families=("ipv4", "ipv6"))


ETHERNETS = {
    "version": 2,
    "ethernets": {
        "id1": {"addresses": ["10.0.0.9/24", "fd00::9/64"]},
        "id0": {"addresses": ["10.0.0.5/24"], "dhcp4": False},
        "odd": {"addresses": "x"},
        "none": None,
    },
}


def encoded(document: Any) -> str:
    return base64.b64encode(yaml.safe_dump(document, sort_keys=False).encode()).decode()


def packed(document: Any) -> str:
    return base64.b64encode(gzip.compress(base64.b64decode(encoded(document)))).decode()


@pytest.mark.parametrize(
    "metadata",
    [
        {"network": ETHERNETS},
        {"network": encoded(ETHERNETS), "network.encoding": "base64"},
        {"network": encoded(ETHERNETS), "network.encoding": "b64"},
        {"network": packed(ETHERNETS), "network.encoding": "gzip+base64"},
    ],
)
def test_static_addresses_come_first_and_in_their_order(metadata: Any) -> None:
    """VS42: an address that moves is not the machine's; the same at each start."""
    found = [GuestAddress(ip_address(one), "") for one in ("10.0.0.100", "10.0.0.5", "10.0.0.9")]
    ordered = sorted_by_metadata(found, (encoded(metadata), "base64"))
    assert [str(one.address) for one in ordered] == ["10.0.0.9", "10.0.0.5", "10.0.0.100"]


@pytest.mark.parametrize(
    ("metadata", "encoding"),
    [
        ("!!!", "base64"),
        (encoded("text"), "base64"),
        (encoded({"network": ETHERNETS}), ""),
        (encoded({"network": "x", "network.encoding": "gz+b64"}), "base64"),
        (encoded({"network": "a: [", "network.encoding": "b64"}), "base64"),
        (encoded({"network": {"ethernets": {"a": {"addresses": ["x"]}}}}), "base64"),
        (base64.b64encode(b"a: &a [x]\nb: [*a, *a]").decode(), "base64"),
        (base64.b64encode(b"x" * (MAX_METADATA + 1)).decode(), "base64"),
        (base64.b64encode(b"a: " + b"- " * 5000).decode(), "base64"),
        (base64.b64encode(b"[" * 12000).decode(), "base64"),
        (base64.b64encode(b"network: !!int ''").decode(), "base64"),
        (base64.b64encode(b"network: !!bool x").decode(), "base64"),
        (base64.b64encode(b"network: !!timestamp x").decode(), "base64"),
    ],
)
def test_metadata_that_is_none_orders_nothing(metadata: str, encoding: str) -> None:
    """Whoever is root in the guest writes it."""
    found = [GuestAddress(ip_address(one), "") for one in ("10.0.0.5", "10.0.0.9")]
    assert sorted_by_metadata(found, (metadata, encoding)) == found


def test_metadata_of_any_size_is_not_kept() -> None:
    """A guest may write another megabyte each time."""
    before = len(REMEMBERED)
    for number in range(3):
        sorted_by_metadata([], (f"{number}" * (MAX_METADATA + 1), "base64"))
    assert len(REMEMBERED) == before


def test_metadata_that_changes_always_takes_little_memory_and_time() -> None:
    """Thousands of addresses took a quarter of a second of one turn, and 170 KiB, each time."""
    assert len(static_addresses(encoded({"network": ETHERNETS}), "base64")) == 3
    entries = "network: {ethernets: {a: {addresses: [%s]}}}"
    few, many = (entries % ("'::'," * number) for number in (200, 2400))
    few, many = (base64.b64encode(it.encode()).decode() for it in (few, many))
    assert len(static_addresses(few, "base64")) == MAX_STATIC
    assert static_addresses(many, "base64") == ()
    assert max(map(len, REMEMBERED)) < 100


def test_addresses_of_metadata_that_has_changed_are_not_those_of_before() -> None:
    for last in (5, 9, 5):
        ethernets = {"ethernets": {"a": {"addresses": [f"10.0.0.{last}/24"]}}}
        found = static_addresses(encoded({"network": ethernets}), "base64")
        assert [str(item) for item in found] == [f"10.0.0.{last}"]


def test_without_metadata_nothing_is_static() -> None:
    assert static_addresses("", "base64") == ()


async def test_static_addresses_are_read_from_vcenter(lab: Lab, cloud: Started) -> None:
    """VS42."""
    (made,) = lab.create("node-1")
    lab.set_guest("node-1", nic("10.0.0.100", "10.0.0.5"))
    lab.change("node-1", metadata=encoded({"network": ETHERNETS}))
    assert (await cloud.known(node_of(made))).addresses[1].address == "10.0.0.5"


async def test_a_new_node_waits_for_tools_and_an_old_one_keeps_what_it_has(
    lab: Lab, cloud: Started
) -> None:
    """VS33, VS34, VS35."""
    (made,) = lab.create("node-1")
    for nics in ((), (nic("fe80::1"),)):
        lab.set_guest("node-1", *nics)
        reported = await cloud.why(node_of(made, is_new=True))
        assert reported.endswith("of lab: VMware Tools report no reachable address")
        assert (await cloud.known(node_of(made))).addresses == ()
    lab.set_guest("node-1", nic("10.0.0.5"))
    assert (await cloud.known(node_of(made, is_new=True))).addresses[1].address == "10.0.0.5"


async def test_a_family_that_is_missing_is_reported(lab: Lab) -> None:
    """VS41."""
    (made,) = lab.create("node-1")
    cloud = await Started(lab.config(ipFamily=["ipv6", "ipv4"])).start()
    assert "it has no ipv6 address" in await cloud.why(node_of(made, is_new=True))
    lab.set_guest("node-1", nic("10.0.0.5", "fd00::5"))
    found = await cloud.known(node_of(made, is_new=True))
    assert [one.address for one in found.addresses[1:]] == ["fd00::5"] * 2 + ["10.0.0.5"] * 2
