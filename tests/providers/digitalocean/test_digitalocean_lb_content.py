"""Load balancers: what is written of a Service and its Nodes."""

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import port
from ccm.errors import LeftOut, Refused
from ccm.model.objects import Json
from tests.labs.digitalocean.records import networks
from tests.labs.digitalocean.server import VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.balancers import only, web
from tests.providers.digitalocean.conftest import Started, host

DUAL = ("10.0.0.7", "192.0.2.7", "2604:a880::7")


async def test_a_list_in_doubt_keeps_no_one_out(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """A Node whose droplet ended is left out, once a whole list lacks it."""
    ended = host(do.add_droplet("ended"))
    await cloud.ensure(web(), host(worker))
    del do.droplets[int(ended.provider_id.rpartition("/")[2])]
    odd = do.add_droplet("odd")
    odd["name"] = ""
    assert cloud.load_balancers
    with pytest.raises(Refused, match="could not be found"):
        await invoke(cloud.load_balancers.update_nodes, web(), [host(worker), ended])
    odd["name"] = "even"
    with pytest.raises(LeftOut):
        await invoke(cloud.load_balancers.update_nodes, web(), [ended, host(worker)])
    assert only(do)["droplet_ids"] == [worker["id"]]


async def test_a_type_is_for_life(do: DigitalOcean, cloud: Started, worker: Json) -> None:
    """DO27: and a load balancer that has one keeps it where nothing else is said."""
    await cloud.ensure(web({"type": "REGIONAL"}), host(worker))
    before = len(do.writes())
    with pytest.raises(Refused, match="is of type REGIONAL, which cannot be changed"):
        await cloud.ensure(web({"type": "REGIONAL_NETWORK"}), host(worker))
    await cloud.ensure(web(), host(worker))
    reported = (await cloud.ensure(web({"network": "INTERNAL"}), host(worker))).warnings
    assert any("network is ignored: the load balancer has EXTERNAL" in one for one in reported)
    assert len(do.writes()) == before


async def test_a_renewed_certificate_stays(do: DigitalOcean, cloud: Started, worker: Json) -> None:
    """DO31: the annotation has the ID from before, and DigitalOcean took that one away."""
    old, new = (do.add_certificate("shop", "lets_encrypt") for _ in range(2))
    other = do.add_certificate("other")
    asked = web({"type": "REGIONAL", "certificate-id": old}, ports=[port(443)])
    await cloud.ensure(asked, host(worker))
    only(do)["forwarding_rules"][0]["certificate_id"] = new
    before = len(do.writes())
    await cloud.ensure(asked, host(worker))
    del do.certificates[old]
    await cloud.ensure(asked, host(worker))
    assert len(do.writes()) == before
    changed = web({"type": "REGIONAL", "certificate-id": other}, ports=[port(443)])
    await cloud.ensure(changed, host(worker))
    assert only(do)["forwarding_rules"][0]["certificate_id"] == other


async def test_a_certificate_is_found_by_its_name(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    asked = web({"type": "REGIONAL", "certificate-name": "shop"}, ports=[port(443)])
    with pytest.raises(Refused, match="no certificate 'shop'"):
        await cloud.ensure(asked, host(worker))
    certificate = do.add_certificate("shop")
    await cloud.ensure(asked, host(worker))
    assert only(do)["forwarding_rules"][0]["certificate_id"] == certificate


async def test_a_size_is_changed_and_else_left_alone(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO36: what someone made bigger stays so; a refusal of the API is terminal, and quoted."""
    await cloud.ensure(web({"size-slug": "lb-medium"}), host(worker))
    assert only(do)["size_unit"] == 3
    await cloud.ensure(web({"size-unit": "2"}), host(worker))
    assert only(do)["size_unit"] == 2
    only(do)["size_unit"] = 5
    await cloud.ensure(web(), host(worker))
    assert only(do)["size_unit"] == 5


async def test_source_ranges_are_cleared(do: DigitalOcean, cloud: Started, worker: Json) -> None:
    """DO37."""
    await cloud.ensure(web(loadBalancerSourceRanges=["192.0.2.0/24"]), host(worker))
    assert only(do)["firewall"]["allow"] == ["cidr:192.0.2.0/24"]
    await cloud.ensure(web(), host(worker))
    assert only(do)["firewall"]["allow"] == []


async def test_two_families_need_them_on_all_nodes(do: DigitalOcean, cloud: Started) -> None:
    """DO39."""
    dual = do.add_droplet("dual", networks=networks(*DUAL))
    single = do.add_droplet("single")
    with pytest.raises(Refused, match="needs IPv6 on all Nodes: not single"):
        await cloud.ensure(web({"network-stack": "DUALSTACK"}), host(dual), host(single))
    await cloud.ensure(web(), host(dual), host(single))
    assert only(do)["network_stack"] == "IPV4"
    do.balancers.clear()
    made = await cloud.ensure(web(), host(dual))
    assert only(do)["network_stack"] == "DUALSTACK"
    assert len(made.ingress) == 2
    do.balancers.clear()
    await cloud.ensure(web({"type": "REGIONAL"}), host(single))
    assert only(do)["network_stack"] == "DUALSTACK"


async def test_one_kubelet_takes_ipv6_from_no_load_balancer(
    do: DigitalOcean, cloud: Started
) -> None:
    """It writes its Node's addresses, and what a load balancer is made with stays for life."""
    made = [host(do.add_droplet(name, networks=networks(*DUAL))) for name in ("one", "two")]
    hidden = made[1].raw["status"]
    hidden["addresses"] = [it for it in hidden["addresses"] if ":" not in it["address"]]
    await cloud.ensure(web(), *made)
    assert only(do)["network_stack"] == "DUALSTACK"


async def test_without_a_fit_node_what_is_behind_stays(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO40: a network load balancer sends to public addresses."""
    await cloud.ensure(web(), host(worker))
    private = host(do.add_droplet("private", networks=networks("10.0.0.9")))
    assert cloud.load_balancers
    for method in (cloud.load_balancers.ensure, cloud.load_balancers.update_nodes):
        with pytest.raises(Refused, match=r"\(private\): .* needs public IPv4 addresses"):
            await invoke(method, web(), [private])
    assert only(do)["droplet_ids"] == [worker["id"]]
    made = await cloud.ensure(web(), private, host(worker))
    assert made.warnings == (
        "private left out: a load balancer of type REGIONAL_NETWORK needs public IPv4 addresses",
    )
    do.balancers.clear()
    await cloud.ensure(web({"network": "INTERNAL"}), private)
    assert only(do)["network"] == "INTERNAL"


async def test_other_backends_are_one_put_and_change_nothing_else(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO41: also what only a person has set stays."""
    await cloud.ensure(web(), host(worker))
    record = only(do)
    record |= {"tls_cipher_policy": "STRONG", "project_id": "a-project-of-their-own"}
    other = do.add_droplet("other")
    start, before = len(do.writes()), dict(record)
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, web(ports=[port(81)]), [host(other)])
    assert len(do.writes()) == start + 1
    assert only(do) == before | {"droplet_ids": [other["id"]]}


async def test_what_someone_added_is_removed(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO42."""
    await cloud.ensure(web(), host(worker))
    rules = only(do)["forwarding_rules"]
    wanted = [dict(rule) for rule in rules]
    rules.append({**rules[0], "entry_port": 8080})
    await cloud.ensure(web(), host(worker))
    assert only(do)["forwarding_rules"] == wanted


async def test_the_vpc_is_the_nodes_or_the_configurations(
    do: DigitalOcean, cloud: Started, worker: Json
) -> None:
    """DO50: and what the API says of a wrong one is quoted."""
    other = "11111111-2222-4333-8444-555555555555"
    wrong = await Started(config_of(do, f"vpc-id = {other}", "region = nyc3")).start()
    with pytest.raises(Refused, match="422 the VPC could not be found in the region"):
        await wrong.ensure(web(), host(worker))
    await cloud.ensure(web(), host(worker))
    assert only(do)["vpc_uuid"] == VPC
