"""What the cloud says about machines: three values, and each call's failure its own."""

from typing import Any

import pytest

from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Address, Machine
from tests.integration.edge_cases.rows import row

from .world import World, node


async def answer(instances: SimulatedInstances, name: str, provider_id: str = "") -> Answer:
    return (await instances.describe([node(name, provider_id)]))[name]


@row("NL16", "NL17")
async def test_a_machine_becomes_an_instance(w: World) -> None:
    addresses = (Address("InternalIP", "10.1.2.3"), Address("ExternalIP", "203.0.113.9"))
    w.cloud.state.machines.add(
        Machine("a", "m-1", "large", "zone-b", "north", addresses=addresses, labels={"rack": "7"})
    )
    expected = Instance(
        provider_id="simulated://m-1",
        type="large",
        zone="zone-b",
        region="north",
        addresses=(
            NodeAddress(AddressType.INTERNAL_IP, "10.1.2.3"),
            NodeAddress(AddressType.EXTERNAL_IP, "203.0.113.9"),
        ),
        labels={"rack": "7"},
        power=PowerState.RUNNING,
    )
    assert await answer(w.instances, "a") == expected
    assert await answer(w.instances, "a", "simulated://m-1") == expected


@pytest.mark.parametrize(
    ("provider_id", "asked"), [pytest.param("", "a", id="NL18"), ("simulated://m-1", "m-1")]
)
async def test_a_machine_that_is_positively_not_there_is_gone(
    w: World, provider_id: str, asked: str
) -> None:
    expected = Gone(f"the cloud has no machine {asked}")
    assert await answer(w.instances, "a", provider_id) == expected


@pytest.mark.parametrize(
    ("name", "provider_id"),
    [
        ("a", "aws:///zone/i-1"),
        ("a", "m-1"),
        ("a", "simulated://"),
        ("a", "simulated:///m-1"),
        ("a", "simulated://m-1,m-2"),
        ("a", "simulated://m-1&names=b"),
        ("a,b", ""),
        ("", ""),
    ],
)
async def test_a_node_that_names_no_machine_is_unknown_without_a_call(
    w: World, name: str, provider_id: str
) -> None:
    assert isinstance(await answer(w.instances, name, provider_id), Unknown)
    assert w.cloud.counters.count() == 0


@row("NL19")
async def test_the_failure_of_one_question_keeps_its_words_and_is_no_answer(w: World) -> None:
    w.cloud.faults.set(CloudFault(CloudFaultKind.ERROR, remaining=1))
    answers = await w.instances.describe([node("a"), node("b", "simulated://m-1")])
    (failed,) = [one for one in answers.values() if isinstance(one, Unknown)]
    assert "ListMachines: 500" in failed.why
    assert len([one for one in answers.values() if isinstance(one, Gone)]) == 1


RECORD = {"id": "m-1", "name": "a", "power": "running", "addresses": []}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in RECORD.items() if name != key}


@pytest.mark.parametrize(
    "body",
    [
        {"items": [without("id")], "not_found": []},
        {"items": [without("name")], "not_found": []},
        {"items": [without("power")], "not_found": []},
        {"items": [without("addresses")], "not_found": []},
        {"items": [{**RECORD, "id": 7}], "not_found": []},
        {"items": [{**RECORD, "power": None}], "not_found": []},
        {"items": [{**RECORD, "addresses": ["10.0.0.1"]}], "not_found": []},
        {"items": [{**RECORD, "addresses": [{"type": "InternalIP"}]}], "not_found": []},
        {"items": ["a", None, 7], "not_found": []},
        {"items": [RECORD], "not_found": ["a"]},
        {"items": [], "not_found": []},
        {"items": [], "not_found": [None, ["a"]]},
        {"items": [], "not_found": ["b"]},
    ],
)
async def test_a_record_that_is_not_right_is_unknown(w: World, body: Any) -> None:
    w.answer_with(body)
    assert isinstance(await answer(w.instances, "a"), Unknown)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, Instance("simulated://m-1")),
        ({"zone": None, "type": 7}, Instance("simulated://m-1")),
        ({"power": "hibernating"}, Instance("simulated://m-1", power=PowerState.UNKNOWN)),
        ({"labels": {"a": "b", "c": 1}}, Instance("simulated://m-1", labels={"a": "b"})),
        (
            {"addresses": [{"type": "Carrier", "address": "pigeon"}]},
            Instance("simulated://m-1"),
        ),
    ],
)
async def test_what_the_cloud_does_not_say_stays_empty(
    w: World, change: dict[str, Any], expected: Instance
) -> None:
    w.answer_with({"items": [{**RECORD, **change}], "not_found": []})
    assert await answer(w.instances, "a") == expected


async def test_all_pages_of_an_answer_are_read_before_it_is_judged(w: World) -> None:
    w.cloud.set_parameters(page=2)
    for number in range(3):
        w.cloud.state.machines.add(Machine("twin", id=f"m-{number}"))
    answers = await w.instances.describe([node("twin"), node("nobody")])
    assert answers["twin"] == Unknown(
        "3 machines are named twin: simulated://m-0, simulated://m-1, simulated://m-2"
    )
    assert isinstance(answers["nobody"], Gone)
    assert w.cloud.counters.reads == 2


async def test_a_machine_of_the_name_confirms_nothing_unless_it_has_the_id(w: World) -> None:
    w.cloud.state.machines.add(Machine("a", id="m-1"))
    w.cloud.state.machines.add(Machine("b", id="m-2"))
    asked = [
        node("a", "simulated://m-1"),
        node("b", "simulated://m-0"),
        node("c", "simulated://m-3"),
    ]
    found = await w.instances.confirm_gone(asked)
    assert isinstance(found["a"], Instance)
    assert found["b"] == Gone("machine b is simulated://m-2")
    assert found["c"] == Gone("the cloud has no machine c")
