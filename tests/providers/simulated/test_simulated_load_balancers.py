"""What the simulated cloud refuses of a Service, and in which words; the rest is in the kit."""

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import CloudError, Refused
from ccm.model.objects import Json
from ccm.providers.simulated.load_balancers import PREFIX, SCHEME_ANNOTATION
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import LoadBalancer

from .world import World, node

INTERNAL: Json = {"annotations": {SCHEME_ANNOTATION: "internal"}}


def record(w: World) -> LoadBalancer:
    return w.cloud.state.load_balancers.get(w.balancers.name_for(service()))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"annotations": {SCHEME_ANNOTATION: "public"}},
            [SCHEME_ANNOTATION, "internet or internal"],
        ),
        ({"annotations": {f"{PREFIX}schema": "internal"}}, [f"{PREFIX}schema", SCHEME_ANNOTATION]),
        ({"ports": [port(80, "SCTP")]}, ["SCTP", "TCP or UDP"]),
        ({"ports": [port(80, node_port=0)]}, ["spec.allocateLoadBalancerNodePorts"]),
        ({"loadBalancerSourceRanges": ["nonsense"]}, ["spec.loadBalancerSourceRanges"]),
        ({"loadBalancerIP": "nonsense"}, ["spec.loadBalancerIP", "not an IP address"]),
    ],
)
async def test_what_the_cloud_cannot_do_is_refused_without_a_write(
    w: World, asked: Json, words: list[str]
) -> None:
    with pytest.raises(Refused) as refusal:
        await w.balancers.ensure(service(**asked), [])
    assert all(word in str(refusal.value) for word in words)
    assert w.cloud.counters.writes == 0


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (INTERNAL, "scheme .* is internet, which cannot be changed"),
        ({"loadBalancerIP": "192.0.2.99"}, "ip .*, which cannot be changed after creation"),
    ],
)
async def test_what_is_fixed_for_life_is_refused_and_the_balancer_stays(
    w: World, asked: Json, words: str
) -> None:
    await w.balancers.ensure(service(), [])
    before = record(w)
    with pytest.raises(Refused, match=words):
        await w.balancers.ensure(service(**asked), [])
    assert record(w) == before


@pytest.mark.parametrize("body", ["[]", '{"name": "x"}'])
async def test_an_odd_record_is_never_taken_for_nothing_there(w: World, body: str) -> None:
    await w.balancers.ensure(service(), [])
    before = record(w)
    w.cloud.faults.set(CloudFault(CloudFaultKind.GARBAGE, body=body))
    for attempt in (
        w.balancers.get(service()),
        w.balancers.ensure(service(), []),
        w.balancers.update_nodes(service(), []),
        w.balancers.delete(service()),
    ):
        with pytest.raises(CloudError) as failure:
            await attempt
        assert type(failure.value) is CloudError
    assert record(w) == before


async def test_a_backend_without_a_machine_is_left_out(w: World) -> None:
    first, second = w.cloud.state.add_machines(2)
    backends = [node(machine.name, f"simulated://{machine.id}") for machine in (first, second)]
    w.cloud.state.machines.terminate(first.id)
    for _ in range(2):
        await w.balancers.ensure(service(), backends)
        assert {*record(w).backends} == {second.id}
        assert w.cloud.counters.writes == 2
