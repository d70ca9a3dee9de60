"""Networks, who claims them, and which routes are ours to delete (rows RT1 to RT5)."""

import time
from collections.abc import Mapping
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.model.cloud import Route, read_network
from tests.support.nodes import node, routed
from workers.route.pod_cidrs import (
    PodCidrIndex,
    PodCidrLimits,
    is_managed,
    pod_cidrs_of,
)
from workers.route.table import RouteTable


@pytest.mark.parametrize(
    ("cluster", "routes", "is_ours"),
    [
        pytest.param("10.244.0.0/16", ["10.244.0.0/24", "10.244.10.0/24"], True, id="RT1"),
        pytest.param("10.244.0.0/14", ["10.247.255.0/24"], True, id="RT2"),
        pytest.param("a00:100::/10", ["a00:100::/24"], True, id="RT3"),
        pytest.param("10.244.0.0/16", ["10.224.0.0/24", "10.255.255.0/24"], False, id="RT4"),
        pytest.param("10.244.0.0/14", ["10.248.0.0/24"], False, id="RT5"),
        pytest.param("10.0.0.0/16", ["10.0.0.0/8"], True, id="wider-with-the-same-begin"),
        pytest.param("10.1.0.0/16", ["10.0.0.0/15"], True, id="wider-with-the-same-end"),
        pytest.param("10.1.0.0/16", ["10.0.0.0/8"], False, id="wider-around-it"),
        pytest.param("10.244.0.0/16", ["::/0"], False, id="of-the-other-family"),
    ],
)
def test_which_routes_are_ours_to_delete(cluster: str, routes: list[str], is_ours: bool) -> None:
    cluster_cidrs = [ip_network(cluster, strict=False)]
    assert {is_managed(ip_network(route), cluster_cidrs) for route in routes} == {is_ours}


@pytest.mark.parametrize(
    ("cidr", "network"),
    [
        ("10.1.2.0/24", "10.1.2.0/24"),
        ("10.1.2.3/24", "10.1.2.0/24"),
        ("FD00:0:0::/64", "fd00::/64"),
        ("10.1.2.0", None),
        ("10.1.2.0/33", None),
        ("banana/24", None),
        ("", None),
    ],
)
def test_a_network_is_read_as_a_network(cidr: str, network: str | None) -> None:
    assert read_network(cidr) == (ip_network(network) if network else None)


def test_a_claim_is_every_pod_cidr_once_and_an_old_node_has_only_one() -> None:
    limits = PodCidrLimits((ip_network("10.0.0.0/8"), ip_network("fd00::/48")))
    cidrs = pod_cidrs_of(routed("a", "10.1.2.0/24", "banana", "10.1.2.7/24", "fd00::/64"), limits)
    assert cidrs.networks == (ip_network("10.1.2.0/24"), ip_network("fd00::/64"))
    assert cidrs.unreadable == ("banana",)
    old = node(lambda raw: raw["spec"].update(podCIDR="10.1.2.0/24"))
    assert pod_cidrs_of(old, limits).networks == (ip_network("10.1.2.0/24"),)
    odd = node(lambda raw: raw["spec"].update(podCIDRs=[None, 7, ""]))
    assert pod_cidrs_of(odd, limits).networks == ()


@pytest.mark.parametrize(
    ("cidr", "masks", "why"),
    [
        pytest.param("10.244.1.0/24", {}, "", id="inside"),
        pytest.param("10.244.0.0/16", {}, "", id="all-of-it"),
        pytest.param("10.244.1.0/24", {4: 24}, "", id="the-mask"),
        pytest.param("10.244.1.0/28", {4: 24}, "", id="narrower"),
        pytest.param("10.244.2.0/23", {4: 24}, "wider than --node-cidr-mask-size-ipv4, /24"),
        pytest.param("10.244.2.0/23", {6: 64}, "", id="the-other-family"),
        pytest.param("10.240.0.0/12", {}, "not inside --cluster-cidr, 10.244.0.0/16", id="around"),
        pytest.param("10.244.0.0/15", {}, "not inside --cluster-cidr", id="the-same-begin"),
        pytest.param("0.0.0.0/0", {}, "not inside --cluster-cidr", id="everything"),
        pytest.param("169.254.169.254/32", {}, "not inside --cluster-cidr", id="metadata"),
        pytest.param("fd00:ec2::254/128", {}, "not inside --cluster-cidr", id="metadata-ipv6"),
    ],
)
def test_what_a_pod_cidr_may_be(cidr: str, masks: Mapping[int, int], why: str) -> None:
    violation = PodCidrLimits((ip_network("10.244.0.0/16"),), masks).violation(ip_network(cidr))
    assert bool(violation) is bool(why)
    assert why in violation


CIDRS = ["10.0.0.0/22", "10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/25", "10.0.4.0/24", "::/64", "::/0"]


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from(CIDRS), max_size=3)))
def test_rivals_are_all_others_with_a_part_of_the_network(wanted: dict[str, list[str]]) -> None:
    pod_cidrs = PodCidrIndex(
        PodCidrLimits((ip_network("0.0.0.0/0"), ip_network("::/0"))),
        [routed("a", *CIDRS), *(routed(name, *some) for name, some in wanted.items())],
    )
    if "a" not in wanted:
        pod_cidrs.remove("a")
    for cidrs in pod_cidrs:
        for network in cidrs.networks:
            overlapping = {
                other.node.name
                for other in pod_cidrs
                if any(n.version == network.version and n.overlaps(network) for n in other.networks)
            }
            assert set(pod_cidrs.overlapping(cidrs, network)) == overlapping - {cidrs.node.name}
            winners = set(pod_cidrs.taken_by(cidrs, network))
            losers = {
                other.node.name
                for other in pod_cidrs
                if any(
                    cidrs.node.name in pod_cidrs.taken_by(other, each) and each.overlaps(network)
                    for each in other.networks
                )
            }
            assert winners | losers == overlapping - {cidrs.node.name}
            names = [other.node.name for other in pod_cidrs.nodes_with(network)]
            assert names == sorted(o.node.name for o in pod_cidrs if network in o.networks)


def test_a_network_that_is_wider_than_most_is_not_compared_with_all() -> None:
    """A few kubelets may have all of the cluster's: each was compared with thousands."""
    limits = PodCidrLimits((ip_network("10.0.0.0/8"),))
    nodes = [routed(f"n{at}", f"10.{at // 256}.{at % 256}.0/24") for at in range(2000)]
    wide = [routed(f"wide{at}", "10.0.0.0/8") for at in range(20)]

    def seconds(pod_cidrs: PodCidrIndex) -> float:
        began = time.process_time()
        for cidrs in pod_cidrs:
            is_taken = bool(pod_cidrs.taken_by(cidrs, cidrs.networks[0]))
            assert is_taken is cidrs.node.name.startswith("wide")
        return time.process_time() - began

    calm, hostile = PodCidrIndex(limits, nodes), PodCidrIndex(limits, [*wide, *nodes])
    assert min(seconds(hostile) for _ in range(3)) < 5 * min(seconds(calm) for _ in range(3))


def test_the_table_remembers_what_was_done_beside_a_listing() -> None:
    table = RouteTable([Route("10.1.0.0/24", "a", "r-1"), Route("10.2.0.0/24", "b", "r-2")])
    old, taken = ip_network("10.1.0.0/24"), ip_network("10.3.0.0/24")
    table.begin_listing()
    table.deleted(table.on(old)[0])
    table.created("c", taken)
    listed = [Route("10.1.0.0/24", "a", "r-1"), Route("10.2.0.0/24", "b", "r-2")]
    after = table.relisted(listed)
    assert after.on(old) == []
    assert [(known.route.node, known.is_listed) for known in after.on(taken)] == [("c", False)]
    seen = table.relisted([*listed, Route("10.3.0.0/24", "c", "r-3")])
    assert [(known.route.id, known.is_listed) for known in seen.on(taken)] == [("r-3", True)]


def test_a_route_that_is_moved_beside_a_listing_keeps_its_new_target() -> None:
    """Where a route's id is its network, a new route has the id of the old one."""
    network = ip_network("10.1.0.0/24")
    table = RouteTable([Route("10.1.0.0/24", "a", "10.1.0.0/24")])
    table.begin_listing()
    table.deleted(table.on(network)[0])
    table.created("b", network)
    for target in ("a", "b"):
        after = table.relisted([Route("10.1.0.0/24", target, "10.1.0.0/24")])
        assert [known.route.node for known in after.on(network)] == ["b"]


def test_a_listed_route_without_a_network_is_left_alone() -> None:
    table = RouteTable([Route("banana", "a", "r-1"), Route("10.1.0.0/24", "a", "r-2")])
    assert (len(table), table.unreadable) == (1, 1)
    assert [known.route.id for known in table.to("a")] == ["r-2"]
