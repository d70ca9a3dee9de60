"""What others write: tenants into Services, kubelets into Nodes, others of the team into names."""

from copy import deepcopy
from typing import Any

import pytest

from ccm.cloud.gate import expecting_balancer, invoke
from ccm.cloud.testkit.harness import node, service
from ccm.errors import CloudError, NotShown, Refused
from ccm.model.cloud import Instance, Unknown
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.digitalocean.firewall_plan import Reading, opened
from ccm.providers.digitalocean.lb.annotations import BALANCER_ID
from ccm.providers.digitalocean.lb.plan import MAX_ADDRESSES, has_address
from tests.labs.digitalocean.records import networks, region
from tests.labs.digitalocean.server import REGION, VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.balancers import NAME, only, web
from tests.providers.digitalocean.conftest import Started, host

SHOP = {"name": "shop", "hostname": "shop.example.com"}
EVERYBODY = {"addresses": ["0.0.0.0/0", "::/0"]}
ABSENT = "4de7ac8b-495b-4884-9a69-1050c6793cd6"


async def check_not_guessed(cloud: Started, name: str, *droplets: Json) -> None:
    answer = await cloud.describe_one(node(name))
    assert isinstance(answer, Unknown), answer
    assert all(str(one["id"]) in answer.why for one in droplets)


async def test_a_droplet_called_like_another_ones_address_is_not_the_nodes(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO2, DO3: anybody of the team may give it that name."""
    real = do.add_droplet("worker", networks=networks("10.0.0.7", "192.0.2.7"))
    called = do.add_droplet("10.0.0.7")
    await check_not_guessed(cloud, "10.0.0.7", real, called)


async def test_anothers_record_that_answers_a_write_is_not_taken_for_ones_own(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """The other would be renamed and tagged, and the Service's own deleted with its address."""
    made = await cloud.ensure(web(), host(worker))
    await cloud.ensure(service("theirs"), host(worker))
    (theirs,) = [one for one in do.balancers.values() if one["name"] != NAME]
    before, record = dict(do.balancers), {"load_balancer": deepcopy(theirs)}

    def mix_up(operation: str, answer: Any) -> Any:
        return (record, answer[1]) if operation == "UpdateLoadBalancer" else answer

    cloud.gate.mix_up = mix_up
    renamed = web({"name": "shop"}, made.ingress[0].ip)
    with pytest.raises(CloudError, match="UpdateLoadBalancer: the answer is not about"):
        await cloud.ensure(renamed, host(worker))
    assert do.balancers.keys() == before.keys()
    assert do.balancers[theirs["id"]] == theirs
    cloud.gate.mix_up = None
    assert (await cloud.ensure(renamed, host(worker))).ingress == made.ingress


@pytest.mark.parametrize("mixed_up", [("tags",), ("id",), ("tags", "name")])
@pytest.mark.parametrize("method", ["ensure", "update_nodes", "delete"])
async def test_records_that_one_list_mixes_up_have_no_other_one_changed_or_deleted(
    do: DigitalOcean, cloud: Started, worker: Json, method: str, mixed_up: tuple[str, ...]
) -> None:
    """By the tags of a Service, the load balancer of another was its second one, and deleted."""
    own = await cloud.ensure(web(), host(worker))
    await cloud.ensure(service("theirs"), host(worker))
    asked, nodes = web(ip=own.ingress[0].ip), [host(worker), host(do.add_droplet("other"))]
    (theirs,) = [one for one in do.balancers.values() if one["name"] != NAME]
    before, mixing = deepcopy(theirs), [True]

    def mix_up(answer: Any) -> Any:
        if (listed := answer[0].get("load_balancers")) and mixing and mixing.pop():
            first, second = listed
            for key in mixed_up:
                first[key], second[key] = second[key], first[key]
        return answer

    cloud.gate.spoil = mix_up
    called = getattr(cloud.load_balancers, method)
    rest = [] if method == "delete" else [nodes]
    with pytest.raises(CloudError, match="with other marks"):
        await invoke(called, asked, *rest)
    assert do.balancers[theirs["id"]] == before
    await invoke(called, asked, *rest)
    assert do.balancers[theirs["id"]] == before


@pytest.mark.parametrize("lines", [[f"vpc-id = {VPC}"], []], ids=["with VPC", "without"])
async def test_a_droplet_that_is_not_there_keeps_no_service_from_its_load_balancer(
    do: DigitalOcean, worker: Json, lines: list[str]
) -> None:
    """A kubelet may name any: the lowest number says in which region new ones are made."""
    cloud = await Started(config_of(do, *lines)).start()
    await cloud.describe(host(worker))
    made_up = host({**worker, "name": "hostile", "id": 1})
    assert (await cloud.ensure(web(), host(worker), made_up)).ingress
    *_, body = do.bodies("POST", "load_balancers")
    assert (body["region"], body["droplet_ids"]) == ("nyc3", [worker["id"]])


@pytest.mark.parametrize("is_gpu", [False, True])
async def test_one_kubelet_does_not_choose_where_load_balancers_are(
    do: DigitalOcean, cloud: Started, is_gpu: bool
) -> None:
    """It may name any droplet of the account, also the oldest one, which has the lowest number."""
    oldest = do.add_droplet("hostile", id=1, region=region("fra1"), vpc_uuid=ABSENT)
    workers = [do.add_droplet(f"worker-{at}", is_gpu=is_gpu) for at in range(2)]
    await cloud.ensure(web(), *map(host, (oldest, *workers)))
    (body,) = do.bodies("POST", "load_balancers")
    assert (body["region"], body["vpc_uuid"]) == (REGION, VPC)


async def test_of_two_droplets_that_of_the_older_node_chooses_where_load_balancers_are(
    do: DigitalOcean, cloud: Started
) -> None:
    other = do.add_droplet("hostile", id=1, region=region("fra1"), vpc_uuid=ABSENT)
    older, newer = host(do.add_droplet("worker")), host(other)
    for second, item in enumerate((older, newer)):
        item.raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
    await cloud.ensure(web(), newer, older)
    (body,) = do.bodies("POST", "load_balancers")
    assert (body["region"], body["vpc_uuid"]) == (REGION, VPC)


def test_of_thousands_of_addresses_that_a_kubelet_writes_few_are_looked_at() -> None:
    """Each invalid one takes the time of an error, for each Service."""
    hostile, right = node("hostile"), {"type": "ExternalIP", "address": "192.0.2.1"}
    odd = [{"type": "ExternalIP", "address": "odd"}] * MAX_ADDRESSES
    hostile.raw["status"] = {"addresses": [*odd[1:], right]}
    assert has_address(hostile, 4, ("ExternalIP",))
    hostile.raw["status"] = {"addresses": [*odd, right]}
    assert not has_address(hostile, 4, ("ExternalIP",))


async def test_a_list_that_lacks_a_published_load_balancer_makes_no_other(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """With a name of its own, nothing is in the way of a second one."""
    made = await cloud.ensure(web({"name": "shop"}), host(worker))
    published = web({"name": "shop"}, made.ingress[0].ip)
    assert cloud.load_balancers
    with expecting_balancer(True):
        there, do.balancers = do.balancers, {}
        with pytest.raises(NotShown):
            await invoke(cloud.load_balancers.ensure, published, (host(worker),))
        do.balancers = there
        assert (await cloud.ensure(published, host(worker))).ingress == made.ingress
    assert len(do.balancers) == 1


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_list_that_lacks_a_load_balancer_with_a_name_makes_no_other(
    do: DigitalOcean, cloud: Started, worker: Json, is_restarted: bool
) -> None:
    """Before it is published; its first name is free again, and upstream annotates its ID."""
    await cloud.ensure(web({"name": "shop"}), host(worker))
    (made_id,) = do.balancers
    asked = web({"name": "shop", **({BALANCER_ID: made_id} if is_restarted else {})})
    cloud = await Started(config_of(do)).start() if is_restarted else cloud

    def lose(answer: Any) -> Any:
        empty: Json = {"load_balancers": [], "links": {}, "meta": {"total": 0}}
        return (empty, answer[1]) if "load_balancers" in answer[0] else answer

    cloud.gate.spoil = lose
    with pytest.raises(CloudError, match=f"the answer lacks {made_id}, which is there"):
        await cloud.ensure(asked, host(worker))
    cloud.gate.spoil = None
    assert [*do.balancers] == [made_id]
    await cloud.ensure(asked, host(worker))
    del do.balancers[made_id]
    await cloud.ensure(asked, host(worker))
    assert len(do.balancers) == 1, "one that someone has deleted is made again"


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_second_load_balancer_of_a_service_goes(
    do: DigitalOcean, cloud: Started, worker: Json, is_deleted: bool
) -> None:
    """As from a list that lacked the first one, in a process that has ended since."""
    made = await cloud.ensure(web({"name": "shop"}), host(worker))
    do.add_balancer(name=NAME)
    asked = web({"name": "shop"}, made.ingress[0].ip)
    if is_deleted:
        assert cloud.load_balancers
        await invoke(cloud.load_balancers.delete, asked)
        assert not do.balancers
    else:
        assert (await cloud.ensure(asked, host(worker))).ingress == made.ingress
        assert only(do)["name"] == "shop"


async def update_nodes_without(part: str, cloud: Started, asked: Service, *nodes: Node) -> None:
    """While lists lack this part of each load balancer."""

    def lose(answer: Any) -> Any:
        for record in answer[0].get("load_balancers", ()):
            del record[part]
        return answer

    cloud.gate.spoil = lose
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, asked, nodes)


@pytest.mark.parametrize("part", ["firewall", "health_check", "forwarding_rules"])
async def test_what_one_list_lacks_of_a_load_balancer_is_not_taken_from_it(
    do: DigitalOcean, cloud: Started, worker: Json, part: str
) -> None:
    """It is written whole: with other Nodes everybody came in, or no one, for half an hour."""
    asked, other = web(loadBalancerSourceRanges=["192.0.2.0/24"]), do.add_droplet("other")
    made = await cloud.ensure(asked, host(worker))
    before = only(do)

    await update_nodes_without(part, cloud, asked, host(worker), host(other))
    droplets = [worker["id"], other["id"]]
    assert only(do) == {**before, "droplet_ids": droplets}
    renamed = web({"name": "shop"}, made.ingress[0].ip, loadBalancerSourceRanges=["192.0.2.0/24"])
    await cloud.ensure(renamed, host(worker), host(other))
    assert only(do) == {**before, "droplet_ids": droplets, "name": "shop"}


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("part", ["type", "firewall"])
async def test_a_new_process_takes_nothing_that_one_list_lacks_from_a_load_balancer(
    do: DigitalOcean, cloud: Started, worker: Json, part: str, is_new: bool
) -> None:
    """A Service that is refused is given its Nodes alone: everybody came in, for as long."""
    asked, other = web(loadBalancerSourceRanges=["192.0.2.0/24"]), do.add_droplet("other")
    await cloud.ensure(asked, host(worker))
    before, started = only(do), await Started(config_of(do)).start() if is_new else cloud

    await update_nodes_without(part, started, asked, host(worker), host(other))
    assert only(do) == {**before, "droplet_ids": [worker["id"], other["id"]]}


async def test_an_old_list_takes_back_no_source_ranges(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """As of a replica that lags behind: the load balancer was as it had been."""
    await cloud.ensure(web(), host(worker))
    old = deepcopy(only(do))
    asked, other = web(loadBalancerSourceRanges=["192.0.2.0/24"]), do.add_droplet("other")
    await cloud.ensure(asked, host(worker))
    firewall = only(do)["firewall"]
    assert firewall != old["firewall"]

    def lag(answer: Any) -> Any:
        if "load_balancers" in answer[0]:
            answer[0]["load_balancers"] = [old]
        return answer

    cloud.gate.spoil = lag
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, asked, (host(worker), host(other)))
    assert only(do)["droplet_ids"] == [worker["id"], other["id"]]
    assert only(do)["firewall"] == firewall


async def test_a_droplet_with_a_gpu_may_have_a_twin_without(
    do: DigitalOcean, cloud: Started
) -> None:
    """DO2: they are in two lists."""
    twins = do.add_droplet("worker", is_gpu=True), do.add_droplet("worker")
    await check_not_guessed(cloud, "worker", *twins)


async def test_a_new_node_waits_for_a_whole_list(do: DigitalOcean, cloud: Started) -> None:
    """DO2, DO14: its droplet's twin may be what is missing."""
    do.add_droplet("worker")
    for number in range(250):
        do.add_droplet(f"other-{number}")

    def end_one(kind: str, page: int) -> None:
        if page == 1:
            do.on_page = None
            del do.droplets[max(do.droplets)]

    do.on_page = end_one
    assert "there are others" in await cloud.why(node("worker"))
    assert isinstance(await cloud.describe_one(node("worker")), Instance)


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_a_published_host_name_gives_no_one_anothers_load_balancer(
    do: DigitalOcean, worker: Json, is_legacy: bool
) -> None:
    """DO25: the tenant chose it, and writes the ID and the name of another's beside it."""
    config = config_of(do, "cluster-id = one")
    theirs = do.add_balancer(name="shop", tags=["k8s:one"] if is_legacy else [])
    first = await Started(config).start()
    await first.ensure(web({"hostname": SHOP["hostname"]}), host(worker))
    (own,) = set(do.balancers) - {theirs["id"]}
    before = dict(theirs)
    claim = web(SHOP | {BALANCER_ID: theirs["id"]}, hostname=SHOP["hostname"])
    second = await Started(config).start()
    reported = await second.ensure(claim, host(worker))
    assert reported.name == NAME
    assert any("ignored" in one for one in reported.warnings)
    third = await Started(config).start()
    assert third.load_balancers
    await invoke(third.load_balancers.delete, claim)
    assert do.balancers == {theirs["id"]: before}
    assert own not in do.balancers


@pytest.mark.parametrize("cluster", [[], ["cluster-id = one"]], ids=["without ID", "with ID"])
@pytest.mark.parametrize("shows_tags", [True, False])
async def test_what_a_tenant_writes_says_nothing_after_a_restart(
    do: DigitalOcean, worker: Json, shows_tags: bool, cluster: list[str]
) -> None:
    """DO25: name, ID and host name are the tenant's own, published or not."""
    do.shows_tags = shows_tags
    theirs = do.add_balancer(name="shop", tags=["k8s:one"] if cluster else [])
    before = dict(theirs)
    claim = web(SHOP | {BALANCER_ID: theirs["id"]}, hostname=SHOP["hostname"])
    cloud = await Started(config_of(do, *cluster)).start()
    with pytest.raises(Refused, match=f"rename it to {NAME}"):
        await cloud.ensure(claim, host(worker))
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.delete, claim)
    assert do.balancers == {theirs["id"]: before}


@pytest.mark.parametrize("shows_tags", [True, False])
async def test_a_name_that_says_whose_it_is_is_not_to_be_had(
    do: DigitalOcean, cloud: Started, worker: Json, shows_tags: bool
) -> None:
    """DO26: another Service's would be kept from having its own, or get this one."""
    do.shows_tags = shows_tags
    await cloud.ensure(web(), host(worker))
    (record,) = do.balancers.values()
    other = "a" + "0" * 31
    with pytest.raises(Refused, match="name"):
        await cloud.ensure(web({"name": other}, ip=record["ip"]), host(worker))
    assert record["name"] == NAME
    assert (await cloud.ensure(web({"name": NAME}, ip=record["ip"]), host(worker))).name == NAME


@pytest.mark.parametrize("claims", ["nothing", "anothers"])
async def test_an_annotated_id_opens_no_port_and_keeps_none_closed(
    do: DigitalOcean, claims: str
) -> None:
    """One of nothing in one Service would keep the firewall of all from being written."""
    section = "[Firewall]\nname = k8s-public-access\ntag = worker\n"
    firewalls = (await Started(config_of(do) + section).start()).firewalls
    assert firewalls
    theirs = do.add_balancer(name="shop")["id"]
    own = do.add_balancer(name=NAME)
    asked = web({BALANCER_ID: theirs if claims == "anothers" else ABSENT}, ip=own["ip"])
    rules = opened([Reading.of(asked, "REGIONAL_NETWORK")], bool)
    assert await firewalls.ensure(rules, [asked])
    (record,) = do.firewalls.values()
    assert [(rule["ports"], rule["sources"]) for rule in record["inbound_rules"]] == [
        ("80", EVERYBODY),
        ("10256", {"load_balancer_uids": [own["id"]]}),
    ]
    assert not await firewalls.ensure(rules, [asked])
