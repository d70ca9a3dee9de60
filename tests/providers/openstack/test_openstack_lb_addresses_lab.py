"""Addresses of load balancers on a real Octavia and Neutron: floating IPs, subnets, families."""

from typing import Any

import pytest

from ccm.errors import CloudError, Denied, Refused
from ccm.providers.openstack.lb.annotations import INTERNAL, PREFIX
from tests.providers.openstack.balancers import CALLER, BalancerLab, Worker, service_of
from tests.support.running import long

pytestmark = pytest.mark.asyncio


@long
async def test_floating_ips_are_chosen_kept_and_given_back(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS59, OS60, OS61, OS62, OS67."""
    public = octavia.world["networks"]["public"]
    other = "Floating IP for Kubernetes external service default/web from cluster other (u-9)"
    for described in ("mine", other):
        wanted = {"floating_network_id": public, "description": described}
        octavia.call("neutron", "POST", "/floatingips", {"floatingip": wanted})
    mine, foreign = sorted(octavia.floating_ips(), key=lambda one: str(one["description"]))[::-1]
    asked = service_of(loadBalancerIP=mine["floating_ip_address"])
    (ingress,) = (await worker.ensure(asked, octavia.nodes[:1])).ingress
    assert ingress.ip == mine["floating_ip_address"]
    taken = service_of("other", loadBalancerIP=ingress.ip)
    with pytest.raises(Refused, match="used by another port"):
        await worker.ensure(taken, octavia.nodes[:1])
    nowhere = service_of("third", loadBalancerIP="203.0.113.250")
    with pytest.raises(Denied):
        await worker.ensure(nowhere, [])
    strange = service_of("fourth", {"flavor-id": public})
    with pytest.raises(Refused):
        await worker.ensure(strange, [])
    down = {"service": "octavia", "method": "DELETE", "status": 503, "agent": CALLER}
    with octavia.faults(down), pytest.raises(CloudError):
        await worker.delete(taken)
    assert len(octavia.floating_ips()) == 2
    for one in (asked, taken, nowhere):
        await worker.delete(one)
    assert {one["id"] for one in octavia.floating_ips()} == {mine["id"], foreign["id"]}
    kept = service_of("kept", {"keep-floatingip": "true"})
    (ingress,) = (await worker.ensure(kept, octavia.nodes[:1])).ingress
    await worker.delete(kept)
    assert ingress.ip in [one["floating_ip_address"] for one in octavia.floating_ips()]


@long
async def test_a_dual_stack_service_has_both_families(octavia: BalancerLab, worker: Worker) -> None:
    """OS78, OS109; and where the network has one only, it is told or refused."""
    dual: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
    made = await worker.ensure(service_of(**dual), octavia.nodes[:1])
    assert "IPv6" in "".join(made.warnings)
    must_be = {**dual, "ipFamilyPolicy": "RequireDualStack"}
    with pytest.raises(Refused, match="IPv6"):
        await worker.ensure(service_of("other", **must_be), octavia.nodes[:1])
    wide = {"network-id": octavia.dual_network(), INTERNAL: "true", "subnet-id": ""}
    both = await worker.ensure(service_of("both", wide, **must_be), octavia.nodes[:1])
    assert [":" in one.ip for one in both.ingress] == [False, True]
    worker.forget_calls()
    await worker.ensure(service_of("both", wide, **must_be), octavia.nodes[:1])
    assert not worker.writes
    only = service_of("six", wide, ipFamilies=["IPv6"])
    (ingress,) = (await worker.ensure(only, octavia.nodes[:1])).ingress
    assert ":" in ingress.ip


@long
async def test_floating_subnets_are_found_by_name_and_tag(octavia: BalancerLab) -> None:
    """OS64."""
    lines = ("floating-subnet = public-d*",)
    worker = await Worker(octavia.config_with(*lines)).start()
    (ingress,) = (await worker.ensure(service_of(), octavia.nodes[:1])).ingress
    assert ingress.ip.startswith("198.51.100.")
    not_dmz = service_of("web", {"floating-subnet-tags": "!dmz", PREFIX + "x": ""})
    await worker.delete(service_of())
    made = await worker.ensure(not_dmz, octavia.nodes[:1])
    assert made.ingress[0].ip.startswith("203.0.113.")
    assert len(made.warnings) == 1
    detected = await Worker(octavia.config_with("floating-network-id =")).start()
    assert (await detected.ensure(service_of("found"), octavia.nodes[:1])).ingress[0].ip
