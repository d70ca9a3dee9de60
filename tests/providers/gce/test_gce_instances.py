"""Nodes and instances: what is found, what is gone, and what nothing is said about."""

from typing import Any

import pytest

from ccm.cloud.testkit.harness import node
from ccm.decide.claims import rightful_node
from ccm.errors import CloudError, Denied, Throttled
from ccm.model.cloud import Gone, Instance, PowerState, Unknown
from tests.labs.gce.project import PROJECT, ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.conftest import Start, Started, host

B, C, _ = ZONES


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("name", ["one", "one.c.lab.internal"])
async def test_a_node_without_an_id_is_the_instance_of_its_name(
    gce: Gce, cloud: Started, zone: str, name: str
) -> None:
    """GC1, GC2, GC3: in any zone of the region, whatever `multizone` says."""
    gce.cloud.add_instance("one", zone)
    found = await cloud.known(name)
    assert found.provider_id == f"gce://{PROJECT}/{zone}/one"
    assert (found.type, found.zone, found.region) == ("e2-standard-2", zone, "europe-west1")
    assert rightful_node([node("another"), node(name)], found) == name, (
        "another Node claims it, too"
    )


async def test_two_instances_of_one_name_are_both_named(gce: Gce, cloud: Started) -> None:
    """GC4."""
    for zone in (B, C):
        gce.cloud.add_instance("one", zone)
    why = await cloud.why("one")
    assert f"{B}/one, {C}/one" in why


@pytest.mark.parametrize(
    ("provider_id", "why"),
    [
        ("gce://lab/one", "names no instance"),
        ("gce://lab/europe-west1-b/one/more", "names no instance"),
        ("gce://other/europe-west1-b/one", "another project"),
        ("aws:///i-1", "another cloud"),
        ("gce://lab/mars-north1-a/one", "no zone mars-north1-a"),
    ],
)
async def test_a_wrong_id_is_unknown_and_others_go_on(
    gce: Gce, cloud: Started, provider_id: str, why: str
) -> None:
    """GC5."""
    there = host(gce.cloud.add_instance("one"))
    answers = await cloud.describe(node("odd", provider_id), there)
    assert why in str(answers["odd"])
    assert isinstance(answers["one"], Instance)


async def test_an_instance_that_both_reads_lack_is_gone(gce: Gce, cloud: Started) -> None:
    """GC6, GC11, GC58: also the last one of all, whose list is empty."""
    there = host(gce.cloud.add_instance("one"))
    gce.cloud.objects[f"projects/{PROJECT}/zones/{B}/instances/one"]["status"] = "TERMINATED"
    assert (await cloud.known(there)).power is PowerState.STOPPED
    del gce.cloud.objects[f"projects/{PROJECT}/zones/{B}/instances/one"]
    assert isinstance(await cloud.describe_one(there), Gone)
    assert gce.names()[-1] == "instances.get"
    assert "no zone has an instance one" in await cloud.why("one")


async def test_who_is_in_a_zone_that_a_list_lacks_is_not_nowhere(gce: Gce, cloud: Started) -> None:
    """After a write that is refused all Nodes would leave their load balancers."""
    there = host(gce.cloud.add_instance("one"))

    def without_zones(answer: Any) -> Any:
        content, response = answer
        return ({**content, "items": {}} if "items" in content else content), response

    cloud.gate.spoil = without_zones
    answer = await cloud.describe_one(there)
    assert isinstance(answer, Unknown)
    assert ("which is there" in answer.why, answer.is_nowhere) == (True, False)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"status": 403, "reason": "forbidden"}, Denied),
        ({"status": 404, "reason": "notFound", "message": "The project was not found"}, CloudError),
        ({"status": 403, "reason": "rateLimitExceeded"}, Throttled),
        ({"status": 503}, CloudError),
    ],
)
async def test_a_failure_makes_no_one_gone(
    gce: Gce, cloud: Started, how: dict[str, Any], error: type[CloudError]
) -> None:
    """GC7, GC8."""
    there = host(gce.cloud.add_instance("one"))
    gce.is_down = how
    with pytest.raises(error):
        await cloud.describe(there)


async def test_a_zone_that_is_not_reached_leaves_the_others(gce: Gce, cloud: Started) -> None:
    """GC9, GC15: by name nothing is known then, as a twin may be there."""
    nodes = [host(gce.cloud.add_instance(f"n-{zone}", zone)) for zone in ZONES]
    gce.cloud.unreachable = {C}
    answers = await cloud.describe(*nodes)
    assert [type(answers[f"n-{zone}"]).__name__ for zone in ZONES[1:]] == ["Unknown", "Instance"]
    assert C in await cloud.why(f"n-{B}")
    assert C in await cloud.why(nodes[1])


@pytest.mark.parametrize(
    ("status", "power"),
    [(one, PowerState.STOPPED) for one in ("TERMINATED", "SUSPENDED")]
    + [(one, PowerState.RUNNING) for one in ("STAGING", "STOPPING", "REPAIRING", "SUSPENDING")],
)
async def test_the_status_of_an_instance_is_its_power(
    gce: Gce, cloud: Started, status: str, power: PowerState
) -> None:
    """GC10."""
    found = await cloud.known(host(gce.cloud.add_instance("one", status=status)))
    assert found.power is power


async def test_addresses_are_those_of_all_interfaces(gce: Gce, cloud: Started) -> None:
    """GC12, GC13: none without natIP, IPv6 as an internal one."""
    cards = [
        {"networkIP": "10.0.0.2", "accessConfigs": [{"name": "nat"}], "ipv6Address": "fd00::2"},
        {
            "networkIP": "10.1.0.2",
            "accessConfigs": [{"natIP": "192.0.2.1"}],
            "ipv6AccessType": "EXTERNAL",
            "ipv6AccessConfigs": [{"externalIpv6": "2001:db8::1"}],
        },
    ]
    network = gce.cloud.link(f"projects/{PROJECT}/global/networks/default")
    cards = [{**card, "network": network} for card in cards]
    gce.cloud.add_instance("one", networkInterfaces=cards)
    found = await cloud.known("one")
    assert [(str(one.type), one.address) for one in found.addresses] == [
        ("InternalIP", "10.0.0.2"),
        ("InternalIP", "fd00::2"),
        ("InternalIP", "10.1.0.2"),
        ("ExternalIP", "192.0.2.1"),
        ("InternalIP", "2001:db8::1"),
    ]


async def test_nodes_cost_a_list_of_500(gce: Gce, cloud: Started) -> None:
    """GC14: no request for one."""
    made = [gce.cloud.add_instance(f"n-{number}", ZONES[number % 3]) for number in range(200)]
    answers = await cloud.describe(*(node(one["name"]) for one in made))
    assert all(isinstance(one, Instance) for one in answers.values())
    assert gce.names() == ["instances.aggregatedList"]


async def test_a_page_that_fails_makes_no_one_gone(gce: Gce, cloud: Started) -> None:
    """GC16."""
    nodes = [host(gce.cloud.add_instance(f"n-{number}")) for number in range(501)]
    gce.fault("pageToken", status=503)
    gce.fault("GET .*aggregated/instances", status=503, times=2)
    with pytest.raises(CloudError):
        await cloud.describe(nodes[500])


async def test_an_instance_made_again_is_the_same_node(gce: Gce, cloud: Started) -> None:
    """GC17: its provider ID is its name."""
    there = host(gce.cloud.add_instance("one"))
    del gce.cloud.objects[f"projects/{PROJECT}/zones/{B}/instances/one"]
    gce.cloud.add_instance("one")
    assert (await cloud.known(there)).provider_id == there.provider_id


@pytest.mark.parametrize("network", ["other", "projects/host/global/networks/default"])
async def test_an_instance_of_another_network_is_not_the_clusters(
    gce: Gce, start: Start, network: str
) -> None:
    there = host(gce.cloud.add_instance("one"))
    cloud = await start(f"network-name = {network}")
    for asked in (there, node("one")):
        assert "does not belong to this cluster" in await cloud.why(asked)
    assert cloud.instances
    cloud.instances.require_marks(["any"])  # type: ignore[attr-defined]
    assert isinstance(await cloud.describe_one(there), Instance)


async def test_an_instance_with_another_network_first_is_not_the_clusters(
    gce: Gce, start: Start
) -> None:
    """No instance group of the network takes it, nor any other that is added with it."""
    there = gce.cloud.add_instance("one")
    asked, (card,) = host(there), there["networkInterfaces"]
    other = {**card, "network": gce.cloud.link(f"projects/{PROJECT}/global/networks/other")}
    there["networkInterfaces"] = [other, card]
    cloud = await start("network-name = default")
    assert "does not belong to this cluster" in await cloud.why(asked)
    there["networkInterfaces"] = [card, other]
    await cloud.known(asked)


async def test_urls_of_any_host_are_equal(gce: Gce, cloud: Started) -> None:
    """GC57."""
    there = gce.cloud.add_instance("one")
    card = there["networkInterfaces"][0]
    for url in ("https://www.googleapis.com/compute/beta/{}", "{}", "/{}"):
        card["network"] = url.format("projects/lab/global/networks/default")
        await cloud.known("one")
    card["network"] = "global/networks/default"
    await cloud.known("one")
