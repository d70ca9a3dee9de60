"""Which addresses a Node gets, and in which order (upstream's rows PA…)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.model.cloud import AddressType, NodeAddress
from tests.support.nodes import address_json, addresses, node, provided_ip, shown, with_addresses
from workers.node.plan import CannotPlan, desired_addresses, prefer

V4, V6 = "10.1.1.1", "fc01:1234::5678"


IN, OUT, HOST = "InternalIP 10.1.1.1", "ExternalIP 55.55.55.55", "Hostname h"
DNS = "InternalDNS in.example, ExternalDNS out.example"
IN6 = f"InternalIP {V6}"
MORE, MORE6 = "InternalIP 10.2.2.2, InternalIP 10.3.3.3", "InternalIP fc01:1234::1234"
SPELT = "InternalIP FC01:1234:0::5678"


@pytest.mark.parametrize(
    ("offered", "provided", "expected"),
    [
        pytest.param(f"{IN}, {HOST}", V4, f"{IN}, {HOST}", id="PA1"),
        pytest.param(f"{IN}, {OUT}, {HOST}", "55.55.55.55", f"{OUT}, {IN}, {HOST}", id="PA2"),
        pytest.param(f"{IN}, {OUT}, {DNS}, {HOST}", V4, f"{IN}, {OUT}, {DNS}, {HOST}", id="PA3"),
        pytest.param(f"{IN}, {MORE}, {OUT}, {HOST}", V4, f"{IN}, {OUT}, {HOST}", id="PA4"),
        pytest.param(f"{IN}, {IN6}, {HOST}", f"{V4},{V6}", f"{IN}, {IN6}, {HOST}", id="PA7"),
        pytest.param(
            f"{IN}, InternalIP 10.1.1.2, {MORE6}, {IN6}, {HOST}",
            f"{V4},{V6}",
            f"{IN}, {IN6}, {HOST}",
            id="PA8",
        ),
        pytest.param(
            f"{IN}, {OUT}, {IN6}, ExternalIP fc01::1, {HOST}",
            f"{V6},{V4}",
            f"{IN6}, {IN}, {OUT}, ExternalIP fc01::1, {HOST}",
            id="PA9",
        ),
        pytest.param(
            f"{IN}, ExternalIP 10.1.1.1, InternalIP 10.1.1.2",
            V4,
            f"{IN}, ExternalIP 10.1.1.1",
            id="the-ip-under-two-types",
        ),
        pytest.param(
            f"{SPELT}, InternalIP fc01::9",
            V6,
            SPELT,
            id="ips-are-compared-as-numbers-and-keep-the-clouds-spelling",
        ),
        pytest.param(IN, "010.001.01.1", IN, id="leading-zeros-are-decimal"),
        pytest.param(IN, "::ffff:10.1.1.1", IN, id="v4-in-v6"),
    ],
)
def test_the_kubelets_own_ip_comes_first_and_alone_of_its_type(
    offered: str, provided: str, expected: str
) -> None:
    assert shown(prefer(addresses(*offered.split(", ")), provided)) == expected.split(", ")


@pytest.mark.parametrize(
    ("provided", "complaint"),
    [
        pytest.param("10.9.9.9", "matches ip: 10.9.9.9", id="PA5"),
        pytest.param(f"{V4},fc01:1234::9999", "matches ip: fc01:1234::9999", id="PA6"),
        pytest.param("", "neither one IP", id="empty"),
        pytest.param(",", "neither one IP", id="comma"),
        pytest.param(f"{V4},", "neither one IP", id="half-a-pair"),
        pytest.param(f"{V4}, {V6}", "neither one IP", id="space"),
        pytest.param(f" {V4}", "neither one IP", id="leading-space"),
        pytest.param(f"{V4},10.1.1.2", "neither one IP", id="two-of-a-family"),
        pytest.param(f"{V4},{V6},{V4}", "neither one IP", id="three"),
        pytest.param(f"0.0.0.0,{V6}", "unspecified", id="unspecified-v4"),
        pytest.param(f"{V4},::", "unspecified", id="unspecified-v6"),
        pytest.param("10.1.1.256", "neither one IP", id="not-a-byte"),
        pytest.param("10.1.1", "neither one IP", id="three-bytes"),
        pytest.param(f"{'1' * 5000}.0.0.0", "neither one IP", id="a-huge-byte"),
    ],
)
def test_an_ip_that_is_not_offered_or_not_an_ip_is_a_problem(provided: str, complaint: str) -> None:
    with pytest.raises(CannotPlan, match=complaint):
        prefer(addresses(f"InternalIP {V4}", "Hostname h"), provided)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param((), (), id="PA10-nothing"),
        pytest.param(("InternalIP 1.1.1.1", "Hostname h"), ("InternalIP 1.1.1.1", "Hostname h"),
                     id="PA10-in-order"),
        pytest.param(("Hostname h", "Hostname h"), ("Hostname h",), id="PA10-once"),
    ],
)  # fmt: skip
def test_every_offered_address_is_stored_once_and_in_order(
    offered: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert desired_addresses(node(), addresses(*offered)) == address_json(*expected)


def test_host_names_that_only_the_node_knows_are_kept_last() -> None:
    known = node(with_addresses("Hostname one", "InternalIP 9.9.9.9", "Hostname two"))
    offered = addresses("InternalIP 10.0.0.1")
    assert desired_addresses(known, offered) == address_json(
        "InternalIP 10.0.0.1", "Hostname one", "Hostname two"
    )


def test_without_an_offer_even_a_wrong_annotation_changes_nothing() -> None:
    assert desired_addresses(node(provided_ip("nonsense")), ()) == []


ips = st.ip_addresses().map(str)
offers = st.lists(
    st.builds(NodeAddress, st.sampled_from(AddressType), ips | st.text(max_size=8)), max_size=6
)


@given(offers, st.text(max_size=20) | ips | st.tuples(ips, ips).map(",".join))
def test_any_annotation_gives_addresses_or_a_problem(
    offered: list[NodeAddress], provided: str
) -> None:
    try:
        chosen = prefer(offered, provided)
    except CannotPlan:
        return
    assert set(chosen) <= set(offered)
    assert {one.type for one in chosen} == {one.type for one in offered}


@given(offers.filter(bool), st.data())
def test_an_offered_ip_can_always_be_asked_for(
    offered: list[NodeAddress], data: st.DataObject
) -> None:
    wanted = data.draw(ips)
    offered.append(NodeAddress(AddressType.INTERNAL_IP, wanted))
    assert prefer(offered, wanted)[0].address
    assert prefer(prefer(offered, wanted), wanted) == prefer(offered, wanted)
