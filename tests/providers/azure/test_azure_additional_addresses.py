"""A Service opens no additional address that is another's, and closes none of another."""

from typing import Any, cast

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import port
from ccm.errors import Refused
from ccm.model.objects import Node
from ccm.providers.azure.lb.request import MOST_ADDITIONAL
from tests.labs.azure.lab import OTHER_GROUP, Lab
from tests.providers.azure.conftest import Started, host
from tests.providers.azure.test_azure_balancers import (
    BY_HAND,
    OFF,
    OTHER_PORT,
    RANGES,
    delete,
    destinations_of,
    rules,
    web,
)


async def test_the_address_of_another_service_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """It would be opened to everybody, and closed to all with the Service that named it."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    attacker = web("attacker", {"additional-public-ips": ip})
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(attacker, node)
    assert rules(lab) == before
    await delete(cloud, attacker)
    assert rules(lab) == before


async def test_other_additional_addresses_with_each_refused_change_are_not_all_kept(
    cloud: Started, node: Node
) -> None:
    """A hundred more of what may be open each time, until a restart."""
    asked = {"pip-name": "missing"}
    for number in range(30):
        ips = [f"198.51.{number}.{last}" for last in range(MOST_ADDITIONAL)]
        attacker = web("attacker", {**asked, "additional-public-ips": ",".join(ips)})
        with pytest.raises(Refused):
            await cloud.ensure(attacker, node)
    (record,) = cast(Any, cloud.load_balancers)._records._found.values()
    assert len(record.additional) <= 10 * MOST_ADDITIONAL


@pytest.mark.parametrize("theirs", [{}, {"pip-name": "by-hand"}], ids=["made", "by hand"])
@pytest.mark.parametrize("group", [{}, {"load-balancer-resource-group": OTHER_GROUP}])
async def test_the_address_of_another_cluster_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, group: dict[str, str], theirs: dict[str, str]
) -> None:
    """Two clusters may have one group and one security group; what is by hand has no mark."""
    lab.put("publicIPAddresses", "by-hand", BY_HAND)
    other = await Started(lab.config(), cluster_name="other").start()
    made = await other.ensure(web("theirs", theirs, **RANGES), host(lab.add_machine("theirs")))
    before, ip = rules(lab), made.ingress[0].ip
    attacker = web("attacker", {"additional-public-ips": ip, **group})
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(attacker, node)
    assert rules(lab) == before
    await delete(cloud, attacker)
    assert rules(lab) == before


async def test_an_address_without_a_mark_is_no_additional_one_while_no_load_balancer_has_it(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """Someone deletes the load balancer, and its Services come back one by one."""
    ip = lab.put("publicIPAddresses", "by-hand", BY_HAND)["properties"]["ipAddress"]
    victim = web("victim", {"pip-name": "by-hand"}, **RANGES)
    await cloud.ensure(victim, node)
    before = rules(lab)
    lab.delete("loadBalancers", "kit")
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(web("attacker", {"additional-public-ips": ip}), node)
    assert rules(lab) == before
    assert (await cloud.ensure(victim, node)).ingress[0].ip == ip


@pytest.mark.parametrize(
    "ip",
    [
        *("10.224.0.4", "fd00::1", "127.0.0.1", "fe80::1%eth0", "0.0.0.0", "100.64.0.4"),
        "::ffff:10.224.0.4",
    ],
)
async def test_an_address_that_is_not_public_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, ip: str
) -> None:
    """Of a machine such as the first, the tenant's ports would be open to everybody."""
    asked = web(annotations={"additional-public-ips": ip}, **OTHER_PORT)
    with pytest.raises(Refused, match="is not a public address"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


@pytest.mark.parametrize("ip", ["168.63.129.16", "::ffff:168.63.129.16"])
async def test_the_address_of_the_platform_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, ip: str
) -> None:
    """All nodes and Pods ask it for names: their questions would come to the tenant."""
    asked = web(annotations={"additional-public-ips": ip}, ports=[port(53, "UDP", 30053)])
    with pytest.raises(Refused, match="is not a public address"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


async def test_one_service_has_no_more_additional_addresses_than_a_part_of_the_group_takes(
    lab: Lab, cloud: Started, node: Node
) -> None:
    many = ",".join(f"198.51.{number}.7" for number in range(101))
    with pytest.raises(Refused, match="more than 100 addresses"):
        await cloud.ensure(web(annotations={"additional-public-ips": many}), node)
    assert rules(lab) == {}


async def test_the_address_of_a_machine_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A network may have any addresses, as those of IPv6 are."""
    interface = lab.get("networkInterfaces", "node-1-nic")
    (record,) = interface["properties"]["ipConfigurations"]
    record["properties"]["privateIPAddress"] = "203.0.113.77"
    lab.put("networkInterfaces", "node-1-nic", interface)
    asked = web(annotations={"additional-public-ips": "203.0.113.77"}, **OTHER_PORT)
    with pytest.raises(Refused, match="is the address of a machine"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


async def test_a_shared_address_is_no_additional_one_of_who_leaves_it(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A port without a rule of the load balancer would be opened there, for everybody."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    await cloud.ensure(web("attacker", **OTHER_PORT, loadBalancerIP=ip), node)
    no_rule = {"service.beta.kubernetes.io/port_80_no_lb_rule": "true"}
    ports = [port(80, node_port=30081), port(443, node_port=30443)]
    attacker = web("attacker", {**no_rule, "additional-public-ips": ip}, ports=ports)
    made = await cloud.ensure(attacker, node)
    assert [one for one in made.warnings if f"{ip} is the address of another Service" in one]
    assert ip not in [one.ip for one in made.ingress]
    assert {name: rule for name, rule in rules(lab).items() if ip in str(rule)} == before


@pytest.mark.parametrize("kind", [{}, OFF], ids=["floats", "off"])
async def test_an_additional_address_that_another_service_gets_is_given_up(
    lab: Lab, cloud: Started, node: Node, kind: dict[str, str]
) -> None:
    """Named before it was anyone's: the other's clients would come here, past its sources."""
    ip = lab.put("publicIPAddresses", "by-hand", BY_HAND)["properties"]["ipAddress"]
    asked = web("attacker", {"additional-public-ips": ip})
    assert ip in [one.ip for one in (await cloud.ensure(asked, node)).ingress]
    await cloud.ensure(web("victim", {**kind, "pip-name": "by-hand"}, **RANGES), node)
    left = [rule["sourceAddressPrefix"] for rule in rules(lab).values() if ip in str(rule)]
    assert left == ([] if kind else RANGES["loadBalancerSourceRanges"])
    made = await cloud.ensure(asked, node)
    assert ip not in [one.ip for one in made.ingress]
    assert [one for one in made.warnings if f"{ip} is the address of another Service" in one]
    await delete(cloud, asked)
    assert left == [rule["sourceAddressPrefix"] for rule in rules(lab).values() if ip in str(rule)]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_additional_addresses_that_are_no_more_are_closed(
    lab: Lab, cloud: Started, node: Node, is_deleted: bool
) -> None:
    """Each would stay in the one group of all Services, which takes 4,000.

    After a restart only the status has them.
    """
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    made = await cloud.ensure(web("web", {"additional-public-ips": "198.51.100.7"}), node)
    asked = web("web")
    published = [{"ip": item.ip} for item in made.ingress]
    hostile = [{"ip": one} for one in (ip, "10.224.0.4", "here")]  # who may write a status
    asked.raw["status"]["loadBalancer"]["ingress"] = [*published, *hostile]
    restarted = await Started(lab.config()).start()
    if is_deleted:
        await delete(restarted, asked)
        assert rules(lab) == before
    else:
        await restarted.ensure(asked, node)
        assert not [one for one in rules(lab).values() if "198.51.100.7" in destinations_of(one)]
    assert before.items() <= rules(lab).items()


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_additional_addresses_that_no_status_has_are_closed(
    lab: Lab, cloud: Started, node: Node, is_deleted: bool
) -> None:
    """As when the Service is changed before its status is written, again and again."""
    await cloud.ensure(web("victim", **RANGES), node)
    before = rules(lab)
    for number in (7, 8):
        asked = {"additional-public-ips": f"198.51.100.{number}"}
        await cloud.ensure(web("web", asked), node)
    assert not [one for one in rules(lab).values() if "198.51.100.7" in destinations_of(one)]
    if is_deleted:
        await delete(cloud, web("web"))
        assert rules(lab) == before
    else:
        await cloud.ensure(web("web"), node)
        assert not [one for one in rules(lab).values() if "198.51.100.8" in destinations_of(one)]


@pytest.mark.parametrize("change", ["comes", "leaves", "is deleted"])
async def test_an_additional_address_of_two_services_is_closed_for_neither(
    lab: Lab, cloud: Started, node: Node, change: str
) -> None:
    """It has no frontend here that would show whose it is."""
    asked = {"additional-public-ips": "198.51.100.7"}
    await cloud.ensure(web("victim", asked, **RANGES), node)
    before = rules(lab)
    made = await cloud.ensure(web("attacker", asked, **OTHER_PORT), node)
    if change == "leaves":
        alone = web("attacker", **OTHER_PORT)
        published = [{"ip": item.ip} for item in made.ingress]
        alone.raw["status"]["loadBalancer"]["ingress"] = published
        await cloud.ensure(alone, node)
    elif change == "is deleted":
        await delete(cloud, web("attacker", asked, **OTHER_PORT))
        assert rules(lab) == before
    assert before.items() <= rules(lab).items()


async def test_where_services_are_restricted_a_deletion_closes_no_additional_address_of_another(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """A Service that is refused since then keeps what it has: nothing would open it again."""
    asked = {"additional-public-ips": "198.51.100.7"}
    await cloud.ensure(web("victim", asked, **RANGES), node)
    before = rules(lab)
    restricted = await Started(lab.config(), restricts_annotations=True).start()
    await delete(restricted, web("attacker", asked))
    assert rules(lab) == before


async def test_additional_addresses_in_the_status_are_told_as_well(
    lab: Lab, cloud: Started, node: Node
) -> None:
    asked = web(annotations={"additional-public-ips": "198.51.100.7"})
    made = await cloud.ensure(asked, node)
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": one.ip} for one in made.ingress]}}
    found = await invoke(cast(Any, cloud.load_balancers).get, asked)
    assert [one.ip for one in found.ingress] == [one.ip for one in made.ingress]


async def test_an_additional_address_that_another_service_gets_is_told_no_more(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """By that the status of one that is refused is corrected, which gives nothing up itself."""
    ip = lab.put("publicIPAddresses", "by-hand", BY_HAND)["properties"]["ipAddress"]
    asked = web("attacker", {"additional-public-ips": ip})
    made = await cloud.ensure(asked, node)
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": one.ip} for one in made.ingress]}}
    await cloud.ensure(web("victim", {"pip-name": "by-hand"}, **RANGES), node)
    found = await invoke(cast(Any, cloud.load_balancers).get, asked)
    assert [one.ip for one in found.ingress] == [made.ingress[0].ip] != [ip]


@pytest.mark.parametrize("asked", [{"additional-public-ips": "nope"}, {}], ids=["odd", "none"])
async def test_an_additional_address_of_a_refused_change_is_told_after_a_restart(
    lab: Lab, cloud: Started, node: Node, asked: dict[str, str]
) -> None:
    """What no status has no one closes later: 4,000 of them let no one in."""
    service = web(annotations={"additional-public-ips": "198.51.100.7"})
    made = await cloud.ensure(service, node)
    again = await Started(lab.config()).start()
    assert again.load_balancers
    refused = web(annotations=asked)
    refused.raw["status"] = {"loadBalancer": {"ingress": [{"ip": it.ip} for it in made.ingress]}}
    found = await invoke(again.load_balancers.get, refused)
    assert found
    assert {it.ip for it in found.ingress} == {it.ip for it in made.ingress}
    await delete(again, refused)
    assert rules(lab) == {}
