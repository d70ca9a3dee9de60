"""Whose the routes of a router are, where a Node's lead, and changes that go together."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_network
from itertools import islice
from typing import Any

import pytest

from ccm.cloud.lookup import MAX_PARTS
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Network
from ccm.model.objects import Json, Node
from ccm.providers.openstack.router import (
    AddressGroup,
    Hop,
    Router,
    RouterRoute,
    by_network,
    choose_hop,
    networks_in,
    our_routes,
)
from ccm.providers.openstack.routes import combined

A, B = "10.244.1.0/24", "10.244.2.0/24"
HOPS = {f"10.0.0.{n}": (f"server-{n}", Hop(f"10.0.0.{n}", {})) for n in (1, 2)}


def with_cidr(name: str, cidr: str) -> Node:
    made = node(name)
    made.raw["spec"]["podCIDRs"] = [cidr]
    return made


NODES = {"server-1": with_cidr("node-1", A), "server-2": with_cidr("node-2", B)}


def networks(*cidrs: str) -> frozenset[Network]:
    return frozenset(map(ip_network, cidrs))


def router(
    *routes: tuple[str, str], ours: Sequence[str] = (), others: Sequence[str] = ()
) -> Router:
    there = by_network(RouterRoute(*route) for route in routes)
    group = AddressGroup("group" if ours else "", networks(*ours))
    return Router(there, group, AddressGroup(), networks(*others))


@pytest.mark.parametrize(
    ("seen", "ours"),
    [
        (router((A, "10.0.0.1")), []),
        (router((A, "10.0.0.1"), (B, "10.0.0.2"), ours=[A]), [(A, "10.0.0.1")]),
        (router((A, "10.0.0.9"), ours=[A]), [(A, "10.0.0.9")]),
        (router(ours=[A]), [(A, "")]),
        (router((A, "10.0.0.1"), (A, "10.0.0.9"), ours=[A]), [(A, "10.0.0.1")]),
        (router((A, "10.0.0.8"), (A, "10.0.0.9"), ours=[A]), []),
    ],
)
def test_ours_is_what_the_group_says_and_never_what_stands_beside_it(
    seen: Router, ours: list[tuple[str, str]]
) -> None:
    assert [(one.cidr, one.next_hop) for one in our_routes(seen, HOPS, NODES)] == ours


@pytest.mark.timeout(10)
def test_of_address_pairs_without_number_some_are_looked_at() -> None:
    """100,000 of one port took a second of a turn; Neutron takes ten."""
    pairs = [{"ip_address": B}] * MAX_PARTS + [{"ip_address": A}]
    hops = [Hop("10.0.0.1", {"allowed_address_pairs": some}) for some in (pairs, pairs[1:])]
    secured = [replace(hop, port={**hop.port, "port_security_enabled": True}) for hop in hops]
    assert [hop.lacks_pair(A) for hop in secured] == [True, False]


def test_routes_without_number_keep_no_process_busy() -> None:
    """All of them may be marked, in any answer."""
    subnets = ip_network("10.0.0.0/8").subnets(new_prefix=28)
    cidrs = [str(network) for network in islice(subnets, 20_000)]
    seen = router(*((cidr, "10.0.0.1") for cidr in cidrs), ours=cidrs)
    assert {route.cidr for route in our_routes(seen, HOPS, NODES)} == {*cidrs}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (router(), ""),
        (router((A, "10.0.0.1")), ""),
        (router((A, "10.0.0.1"), ours=[A], others=[A]), ""),
        (router((A, "10.0.0.2")), "to 10.0.0.2 already"),
        (router((A, "10.0.0.1"), others=[A]), "another cluster's"),
    ],
)
def test_a_network_that_another_routes_is_left_to_him(seen: Router, words: str) -> None:
    wanted = RouterRoute(A, "10.0.0.1")
    if not words:
        seen.check(wanted)
        return
    with pytest.raises(Refused, match=words):
        seen.check(wanted)


def test_groups_hold_networks_and_nothing_else() -> None:
    groups: list[Json] = [{"addresses": [A, "nonsense", None]}, {"addresses": None}, {}]
    assert networks_in(groups) == networks(A)


@pytest.mark.parametrize(
    ("named", "version", "chosen"),
    [
        ([], 4, "10.0.0.1"),
        (["10.0.0.2"], 4, "10.0.0.2"),
        (["10.0.0.9", "10.0.0.2"], 4, "10.0.0.2"),
        (["10.0.0.9"], 4, "10.0.0.1"),
        ([], 6, "fd00::1"),
    ],
)
def test_a_node_chooses_among_the_addresses_of_its_own_server(
    named: list[str], version: int, chosen: str
) -> None:
    asked = node("node-1")
    addresses = [{"type": "InternalIP", "address": address} for address in named]
    asked.raw["status"] = {"addresses": addresses}
    hops = [Hop(address, {}) for address in ("10.0.0.1", "10.0.0.2", "fd00::1")]
    hop = choose_hop(hops, asked, version)
    assert hop
    assert hop.address == chosen
    assert choose_hop([], asked, version) is None


@pytest.mark.parametrize(
    ("port", "lacks"),
    [
        ({"port_security_enabled": True, "allowed_address_pairs": []}, True),
        ({"port_security_enabled": True, "allowed_address_pairs": [{"ip_address": A}]}, False),
        ({"port_security_enabled": False, "allowed_address_pairs": []}, False),
        ({}, False),
    ],
)
def test_a_pair_is_needed_where_the_port_drops_what_pods_send(port: Json, lacks: bool) -> None:
    """OS81."""
    assert Hop("10.0.0.1", port).lacks_pair(A) is lacks


class Cloud:
    """Takes changes, and refuses or fails where it is told to."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.errors: dict[str, CloudError] = {}
        self.combined = combined(self._write)

    async def _write(self, items: Sequence[str]) -> None:
        self.calls.append(sorted(items))
        for item in items:
            if item in self.errors:
                raise self.errors[item]

    async def do(self, *items: str) -> list[Any]:
        each = (self.combined.do(item) for item in items)
        return await asyncio.gather(*each, return_exceptions=True)


async def test_a_refused_change_keeps_no_other_back() -> None:
    cloud, refused = Cloud(), Refused("no")
    cloud.errors["b"] = refused
    assert await cloud.do("a", "b", "c") == [None, refused, None]
    assert cloud.calls == [["a", "b", "c"], ["a"], ["b"], ["c"]]


async def test_a_cloud_that_fails_is_not_asked_for_each_by_itself() -> None:
    cloud, failed = Cloud(), CloudError("down")
    cloud.errors["b"] = failed
    assert await cloud.do("a", "b", "c") == [failed, failed, failed]
    assert len(cloud.calls) == 1
