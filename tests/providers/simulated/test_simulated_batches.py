"""Many Nodes to a call, exactly as many calls as needed, and each call's failure its own."""

import pytest

from ccm.errors import CloudError, Throttled
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.sandbox.cloud.faults import Fault, Kind
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.server import CloudServer

from .doubles import CountingGate, node, nodes


@pytest.mark.parametrize(("count", "reads"), [(0, 0), (1, 1), (100, 1), (101, 2), (250, 3)])
async def test_nodes_cost_a_read_a_page(
    cloud: CloudServer,
    instances: SimulatedInstances,
    gate: CountingGate,
    count: int,
    reads: int,
) -> None:
    cloud.state.add_machines(250)
    answers = await instances.describe(nodes(count))
    assert sum(isinstance(answer, Instance) for answer in answers.values()) == count
    assert (cloud.counters.reads, cloud.counters.writes) == (reads, 0)
    assert gate.calls["ListMachines", "read"] == reads


async def test_ids_and_names_are_asked_apart(
    cloud: CloudServer, instances: SimulatedInstances
) -> None:
    machines = cloud.state.add_machines(250)
    known = [node(m.name, f"simulated://{m.id}") for m in machines[:150]]
    fresh = [node(m.name) for m in machines[150:]]
    answers = await instances.describe([*known, *fresh, node("nobody", "simulated://m-404")])
    assert {name for name, a in answers.items() if isinstance(a, Instance)} == {
        machine.name for machine in machines
    }
    assert isinstance(answers["nobody"], Gone)
    assert cloud.counters.reads == 2 + 1


async def test_two_nodes_of_one_machine_are_asked_for_once(
    cloud: CloudServer, instances: SimulatedInstances
) -> None:
    cloud.state.machines.add(Machine("a", id="m-1"))
    answers = await instances.describe([node(name, "simulated://m-1") for name in ("a", "b")])
    assert answers["a"] == answers["b"]
    assert isinstance(answers["b"], Instance)


async def test_all_pages_of_an_answer_are_read_before_it_is_judged(
    cloud: CloudServer, instances: SimulatedInstances
) -> None:
    cloud.service.change_conditions(page=2)
    for number in range(3):
        cloud.state.machines.add(Machine("twin", id=f"m-{number}"))
    answers = await instances.describe([node("twin"), node("nobody")])
    assert answers["twin"] == Unknown(
        "3 machines are named twin: simulated://m-0, simulated://m-1, simulated://m-2"
    )
    assert isinstance(answers["nobody"], Gone)
    assert cloud.counters.reads == 2


async def test_pages_that_go_round_end(cloud: CloudServer, instances: SimulatedInstances) -> None:
    body = '{"items": [], "not_found": [], "next_page_token": "again"}'
    cloud.faults.set(Fault(Kind.GARBAGE, body=body))
    with pytest.raises(CloudError, match="circle"):
        await instances.describe([node("a")])
    assert cloud.counters.reads == 2


async def test_a_failed_page_makes_only_its_own_nodes_unknown(
    cloud: CloudServer, instances: SimulatedInstances, gate: CountingGate
) -> None:
    cloud.state.add_machines(250)
    cloud.faults.set(Fault(Kind.ERROR, remaining=1))
    answers = await instances.describe([*nodes(249), node("nobody")])
    unknown = [name for name, answer in answers.items() if isinstance(answer, Unknown)]
    assert len(answers) == 250
    assert len(unknown) in (50, 100)
    assert isinstance(answers["nobody"], Gone) or "nobody" in unknown
    assert [type(error) for error in gate.errors] == [CloudError]


async def test_when_every_page_failed_the_error_is_raised(
    cloud: CloudServer, instances: SimulatedInstances, gate: CountingGate
) -> None:
    cloud.faults.set(Fault(Kind.THROTTLE, retry_after=7))
    with pytest.raises(Throttled) as raised:
        await instances.describe([*nodes(250), node("foreign", "aws://i-1")])
    assert raised.value.seconds == 7
    assert len(gate.errors) == 3


async def test_a_batch_larger_than_the_clouds_page_is_refused_and_says_why(
    cloud: CloudServer, api: SimulatedApi
) -> None:
    with pytest.raises(CloudError, match="at most 100 are allowed"):
        await SimulatedInstances(api, batch_size=101).describe(nodes(101))
