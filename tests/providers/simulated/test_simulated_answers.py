"""What the cloud answers about machines, volumes and routes, well and badly.

The conformance kit sends garbage that is not JSON. Only these tests send JSON that is nearly right.
"""

from typing import Any

import pytest

from ccm.model.cloud import AddressType, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Address, Machine
from tests.support.rows import row

from .world import World, node, volume

MACHINE = {"id": "m-1", "name": "a", "power": "running", "addresses": []}
VOLUME = {"id": "vol-0", "zones": ["zone-a"], "region": "north"}
ROUTE = {
    "id": "r-1",
    "cidr": "10.244.0.0/24",
    "machine_id": "m-1",
    "state": "active",
    "tags": {"cluster": "test"},
}


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
    for asked in (node("a"), node("a", "simulated://m-1")):
        assert await w.instances.describe([asked]) == {"a": expected}


@pytest.mark.parametrize(
    ("provider_id", "asked"), [pytest.param("", "a", id="NL18"), ("simulated://m-1", "m-1")]
)
async def test_a_machine_that_does_not_exist_is_gone(
    w: World, provider_id: str, asked: str
) -> None:
    answers = await w.instances.describe([node("a", provider_id)])
    assert answers == {"a": Gone(f"the cloud has no machine {asked}")}


@row("NL19")
async def test_the_failure_of_one_question_keeps_its_words_and_is_no_answer(w: World) -> None:
    w.cloud.faults.set(CloudFault(CloudFaultKind.ERROR, remaining=1))
    answers = await w.instances.describe([node("a"), node("b", "simulated://m-1")])
    (failed,) = [one for one in answers.values() if isinstance(one, Unknown)]
    assert "ListMachines: 500" in failed.why
    assert len([one for one in answers.values() if isinstance(one, Gone)]) == 1


@pytest.mark.parametrize(
    "change",
    [
        *({"items": [MACHINE | {key: None}]} for key in MACHINE),
        {"items": [MACHINE | {"id": 7}]},
        {"items": [MACHINE | {"addresses": ["10.0.0.1"]}]},
        {"items": [MACHINE | {"addresses": [{"type": "InternalIP"}]}]},
        {"items": ["a", None, 7]},
        {"items": [MACHINE], "not_found": ["a"]},
        {"not_found": [None, ["a"]]},
        {"not_found": ["b"]},
        {},
    ],
)
async def test_a_machine_that_is_not_understood_is_unknown(w: World, change: Any) -> None:
    w.answer_with({"items": [], "not_found": []} | change)
    assert isinstance((await w.instances.describe([node("a")]))["a"], Unknown)


@pytest.mark.parametrize(
    "change",
    [
        *({"items": [VOLUME | {"zones": zones}]} for zones in (None, "zone-a", [7])),
        {"items": [VOLUME | {"id": 7}]},
        {"items": [VOLUME, VOLUME | {"zones": ["zone-b"]}]},
        {"items": [VOLUME], "not_found": ["vol-0"]},
        {"items": ["vol-0", None], "not_found": [None, ["vol-0"]]},
        {"not_found": ["vol-1"]},
    ],
)
async def test_a_volume_that_is_not_understood_is_unknown(w: World, change: Any) -> None:
    w.answer_with({"items": [], "not_found": []} | change)
    assert isinstance((await w.volumes.describe([volume("vol-0", "pv")]))["pv"], Unknown)


@pytest.mark.parametrize(
    "odd", [None, *(ROUTE | {key: ""} for key in ("id", "cidr", "machine_id", "state"))]
)
async def test_a_route_that_is_not_understood_is_skipped_and_logged(
    w: World, odd: object, caplog: pytest.LogCaptureFixture
) -> None:
    w.answer_with({"items": [odd, ROUTE | {"id": "r-2"}], "next_page_token": None})
    assert [route.id for route in await w.routes.list([])] == ["r-2"]
    assert "routes not understood" in caplog.text
