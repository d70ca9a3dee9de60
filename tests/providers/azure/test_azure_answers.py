"""What Resource Manager may answer that is odd, without the lab."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, RetryAfter, Unauthenticated
from ccm.http import HttpResponse
from ccm.model.objects import Json
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.addresses import PublicAddresses
from ccm.providers.azure.lb.members import Members, PoolMembers, backends
from ccm.providers.azure.machines import Machine, Machines
from ccm.providers.azure.shared_writes import SharedResource

STACK = "https://management.local.example"
BALANCER = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kit"
INTERFACE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/{}"


def api(**config: Any) -> AzureApi:
    made = AzureConfig(**config)
    return AzureApi(made, lambda: made, KitGate(10.0), "test")


@pytest.mark.virtual_time
@pytest.mark.parametrize("retry_after", ["0.001", "0", "", "3"])
async def test_an_operation_that_never_ends_is_looked_at_once_a_second_at_most(
    retry_after: str,
) -> None:
    """Whatever it says: others need the calls."""
    azure, looks = api(), 0
    headers = {b"retry-after": retry_after.encode()}
    place = f"https://management.azure.com{BALANCER}/operations/1"

    async def exchange(_: object) -> tuple[Any, HttpResponse]:
        nonlocal looks
        looks += 1
        assert looks < 1_000
        return {"status": "InProgress"}, HttpResponse(202, "", headers)

    cast(Any, azure).exchange = exchange
    accepted = HttpResponse(202, "", {**headers, b"azure-asyncoperation": place.encode()})
    with pytest.raises(RetryAfter, match="still in progress"):
        await azure._follow("PutThing", accepted)
    assert looks <= 182


async def test_zones_that_an_answer_leaves_out_are_asked_for_again() -> None:
    """A public address without zones never gets any."""
    answers: list[Json] = [
        {"resourceTypes": []},
        {"resourceTypes": [{"resourceType": "virtualMachines", "zoneMappings": [
            {"location": "West Europe", "zones": ["2", "1"]}]}]},
    ]  # fmt: skip

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return answers.pop(0)

    addresses = PublicAddresses(cast(AzureApi, Api()), AzureConfig(location="westeurope"), "kit")
    with pytest.raises(CloudError, match="GetZones"):
        await addresses.zones()
    assert await addresses.zones() == ["1", "2"]


async def test_endpoints_that_give_no_token_are_asked_for_again() -> None:
    azure, logins = api(resource_manager_endpoint=STACK, use_managed_identity_extension=False,
        aad_client_id="id", aad_client_secret="secret", tenant_id="t"), list[str]()  # fmt: skip

    def endpoints(login: str) -> list[Json]:
        known = {"loginEndpoint": login, "audiences": ["https://audience"]}
        return [{"name": "AzurePublicCloud", "authentication": known}]

    answers = [endpoints("https://old"), endpoints("https://new")]

    async def attempt(request: Any) -> tuple[Any, HttpResponse]:
        if request.operation == "GetEndpoints":
            return answers.pop(0), HttpResponse(200, "", {})
        logins.append(request.url)
        if request.url == "https://old":
            raise CloudError("GetToken: no route")
        return {"access_token": "token", "expires_in": 3600}, HttpResponse(200, "", {})

    cast(Any, azure).attempt = attempt
    with pytest.raises(CloudError) as raised:
        await azure._new_token("t")
    assert not isinstance(raised.value, Unauthenticated)
    assert (await azure._new_token("t")).value == "token"
    assert logins == ["https://old", "https://new"]


@pytest.mark.virtual_time
async def test_interfaces_of_machines_that_come_and_go_take_no_memory() -> None:
    class Api:
        async def put(self, operation: str, path: str, body: Mapping[str, Any], etag: str) -> Json:
            return dict(body)

    members = Members(cast(AzureApi, Api()), AzureConfig())
    for number in range(100):
        await members._write({"id": INTERFACE.format(number), "etag": "1"})
        await asyncio.sleep(60.0)
    assert len(members._written) < 10


def test_a_list_without_any_machine_of_several_nodes_takes_no_member_away() -> None:
    machine = (
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines"
    )
    nodes = [node(f"node-{number}", f"{machine}/node-{number}") for number in range(3)]
    config = AzureConfig(subscription_id="s")
    with pytest.raises(CloudError, match="none of the 3 machines of nodes"):
        backends(nodes, Machines(), config)
    assert backends(nodes[:2], Machines(), config) == {"node-0": None, "node-1": None}


def test_a_machine_that_a_list_leaves_out_stays_behind_load_balancers() -> None:
    """As where those of one scale set are answered with 404."""
    machines, config = Machines(), AzureConfig(subscription_id="s")
    sets = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets"
    nodes = [node(f"n-{item}", f"azure://{sets}/{item}/virtualMachines/0") for item in "ab"]
    nodes.append(node("other", f"azure://{sets}/c/virtualMachines/0".replace("/s/", "/t/")))
    machines.add([Machine({"id": f"{sets}/a/virtualMachines/0", "name": "a"}, None)])
    wanted = backends(nodes, machines, config)
    assert {name: bool(machine) for name, machine in wanted.items()} == {"n-a": True, "n-b": False}
    entry = {"name": "n-b", "properties": {"ipAddress": "10.0.0.9"}}
    pool: Json = {"properties": {"loadBalancerBackendAddresses": [entry]}}
    assert Members(api(), config).leaving(PoolMembers(pool, wanted, 4), []) == set()


async def test_who_gave_up_while_others_were_written_is_not_written_later() -> None:
    """Its Service may be gone by then."""
    is_free, there = asyncio.Event(), Json(etag="1", properties={"provisioningState": "Succeeded"})

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return dict(there)

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            await is_free.wait()
            there.update(body)
            return dict(there)

    shared = SharedResource(cast(AzureApi, Api()), "Thing", "/thing", None)
    names = ("first", "second", "third")

    def change(name: str) -> asyncio.Task[Json | None]:
        return asyncio.create_task(shared.change(lambda item: item.update({name: True})))

    first, second, third = map(change, names)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    is_free.set()
    await asyncio.gather(first, third)
    assert [name for name in names if name in there] == ["first", "third"]
