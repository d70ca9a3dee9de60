"""What Resource Manager may answer that is odd, without the lab."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, cast

import pytest

from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, NotFound, RetryAfter, Unauthenticated
from ccm.http import HttpResponse
from ccm.model.objects import Json
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.addresses import PublicAddresses
from ccm.providers.azure.lb.members import MEMBERS, Members, PoolMembers, backends
from ccm.providers.azure.lb.names import SERVICE_TAGS
from ccm.providers.azure.lb.owners import Owner
from ccm.providers.azure.lb.plan import FRONTENDS, RULES, is_used, pools_of
from ccm.providers.azure.machines import Machine, Machines
from ccm.providers.azure.shared_writes import SharedResource

STACK = "https://management.local.example"
BALANCER = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/kit"
DONE = {"status": "Succeeded"}
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


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("header", "answers", "is_done"),
    [
        (b"azure-asyncoperation", [(200, {})], False),
        (b"azure-asyncoperation", [(200, {"status": ["Failed"]})], False),
        (b"azure-asyncoperation", [(200, {"status": "InProgress"}), (204, {})], False),
        (b"azure-asyncoperation", [(202, {"status": "InProgress"}), (200, DONE)], True),
        (b"location", [(202, {}), (200, {})], True),
    ],
)
async def test_an_operation_has_ended_when_its_answer_has_the_end(
    header: bytes, answers: list[tuple[int, Json]], *, is_done: bool
) -> None:
    """What is not deleted yet, or never is, would be left behind for good."""
    azure, left = api(), list(answers)

    async def exchange(_: object) -> tuple[Any, HttpResponse]:
        status, answer = left.pop(0)
        return answer, HttpResponse(status, "", {})

    cast(Any, azure).exchange = exchange
    place = f"https://management.azure.com{BALANCER}/operations/1"
    with nullcontext() if is_done else pytest.raises(CloudError, match="GetOperation"):
        await azure._follow("DeleteThing", HttpResponse(202, "", {header: place.encode()}))
    assert not left


@pytest.mark.parametrize("less", [{}, {"location": "West Europe", "zones": ["2"]}])
async def test_zones_that_an_answer_leaves_out_are_asked_for_again(less: Json) -> None:
    """A public address without zones, or in one alone, never gets any other."""
    answers: list[Json] = [
        {"resourceTypes": []},
        {"resourceTypes": [{"resourceType": "virtualMachines", "zoneMappings": [less]}]},
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


@pytest.mark.parametrize("lacking", ["list", "answer"])
async def test_a_public_address_keeps_what_one_answer_lacks(lacking: str) -> None:
    """It is written whole, and its name would be anybody's."""
    path = BALANCER.replace("loadBalancers/kit", "publicIPAddresses/shared")
    full: Json = {"id": path, "etag": "1", "tags": {SERVICE_TAGS[0]: "default/web,default/other"}}
    full["properties"] = {"dnsSettings": {"domainNameLabel": "shop"}}
    bare, written = {**full, "properties": {}}, list[Json]()
    is_listed_bare = lacking == "list"

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return full if is_listed_bare else bare

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            written.append(body["properties"])
            return body

    addresses = PublicAddresses(cast(AzureApi, Api()), AzureConfig(), "kit")
    with nullcontext() if is_listed_bare else pytest.raises(RetryAfter, match="lacks parts"):
        listed = bare if is_listed_bare else full
        await addresses.release(Owner("kit", "default/web"), [], [listed])
    assert written == ([full["properties"]] if is_listed_bare else [])


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


async def test_endpoints_whose_tokens_are_refused_are_asked_for_again() -> None:
    """An audience that one answer has wrong counted until a restart."""
    azure, shown = api(resource_manager_endpoint=STACK, use_managed_identity_extension=False,
        aad_client_id="id", aad_client_secret="secret", tenant_id="t"), list[str]()  # fmt: skip

    def endpoints(audience: str) -> list[Json]:
        known = {"loginEndpoint": "https://login", "audiences": [f"https://{audience}"]}
        return [{"name": "AzurePublicCloud", "authentication": known}]

    answers = [endpoints("wrong"), endpoints("right")]

    async def attempt(request: Any) -> tuple[Any, HttpResponse]:
        found: Any = {}
        if request.operation == "GetEndpoints":
            found = answers.pop(0)
        elif request.operation == "GetToken":
            shown.append("right" if b"right" in request.body else "wrong")
            found = {"access_token": f"{shown[-1]}-token-of-sixteen", "expires_in": 3600}
        elif shown[-1] == "wrong":
            raise Unauthenticated("the audience is wrong")
        return found, HttpResponse(200, "", {})

    cast(Any, azure).attempt = attempt
    assert await azure.get("GetResource", BALANCER) == {}
    assert shown == ["wrong", "right"]


async def test_a_machine_that_a_list_leaves_out_keeps_its_interface_in_the_pool() -> None:
    """Its membership is in its interface, whose list has it."""
    writes, group = list[str](), "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
    pool, vms = f"{BALANCER}/backendAddressPools/kit", f"{group}/virtualMachines"
    cases = [("lost", f"{vms}/lost"), ("gone", f"{vms}/gone"), ("elsewhere", "")]
    interfaces, joined = list[Json](), list[Json]()
    for name, machine in cases:
        config: Json = {"id": f"{INTERFACE.format(name)}/ipConfigurations/1"}
        config["properties"] = {MEMBERS: [{"id": pool}]}
        properties = {"ipConfigurations": [config], "virtualMachine": {"id": machine}}
        interfaces.append({"id": INTERFACE.format(name), "properties": properties})
        joined.append({"id": config["id"]})

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return next(item for item in interfaces if item["id"] == path)

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            writes.append(path.rpartition("/")[2])
            return body

    record = {"id": pool, "properties": {"backendIPConfigurations": joined}}
    members = Members(cast(AzureApi, Api()), AzureConfig())
    asked = PoolMembers(record, {"lost": None}, 4, {f"{vms}/lost".lower()})
    await members.join(asked, interfaces, 0)
    assert sorted(writes) == ["elsewhere", "gone"]
    left = {"backendIPConfigurations": joined[:1]}
    assert members.are_right(PoolMembers({**record, "properties": left}, {"lost": None}, 4,
        asked.unknown), interfaces)  # fmt: skip


async def test_interfaces_without_number_are_not_copied_to_see_which_are_wrong() -> None:
    """Copies of 20,000 took six seconds of one turn for each Service, of 5,000 more than one."""
    pool = f"{BALANCER}/backendAddressPools/p"
    path = INTERFACE.format("a")
    own = {"id": f"{path}/ipConfigurations/1", "properties": {MEMBERS: [{"id": pool}]}}
    right = {"id": path, "properties": {"ipConfigurations": [own]}, "odd": object()}  # no copy
    members = Members(cast(AzureApi, None), AzureConfig())
    joined = {"backendIPConfigurations": [{"id": own["id"]}]}
    unknown = PoolMembers({"id": pool, "properties": joined}, {"a": None}, 4, {""})
    assert not await members.join(unknown, [right], 0)


@pytest.mark.parametrize("lacking", ["networkSecurityGroup", "enableIPForwarding", "dnsSettings"])
async def test_an_interface_keeps_the_settings_that_one_answer_lacks(lacking: str) -> None:
    """Without its security group all ports of the machine are open, for good."""
    settings: Json = {
        "networkSecurityGroup": {"id": "/group"},
        "enableIPForwarding": True,
        "dnsSettings": {"dnsServers": ["10.0.0.4"]},
    }
    path, written = INTERFACE.format("a"), list[Json]()
    configuration: Json = {"id": f"{path}/ipConfigurations/1", "properties": {}}
    full: Json = {"ipConfigurations": [configuration], **settings}
    answers = [full, {key: value for key, value in full.items() if key != lacking}]

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return {"id": path, "etag": "1", "properties": deepcopy(answers.pop())}

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            written.append(body["properties"])
            return {**body, "properties": {**body["properties"], "provisioningState": "Succeeded"}}

    members = Members(cast(AzureApi, Api()), AzureConfig())
    listed, joining = {"id": path, "etag": "1", "properties": full}, [configuration["id"].lower()]
    with pytest.raises(RetryAfter, match="lacks"):
        await members._write(listed, BALANCER, joining)
    await members._write(listed, BALANCER, joining)
    assert [{key: item.get(key) for key in settings} for item in written] == [settings]


async def test_what_the_first_answer_of_a_process_lacks_is_not_written_back() -> None:
    """No ETag of before says what others have, such as another cluster's routes."""
    answers, written = [["a"], ["a", "b"], ["a", "b"]], list[list[str]]()

    def record(names: list[str]) -> Json:
        state = {RULES: [{"name": name} for name in names], "provisioningState": "Succeeded"}
        return {"id": BALANCER, "etag": "1", "properties": state}

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return record(answers.pop(0))

        async def list(self, operation: str, path: str) -> Sequence[Json]:
            return [record(["a", "b"])]

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            written.append([rule["name"] for rule in body["properties"][RULES]])
            return {**body, "etag": "2"}

    def add(item: Json) -> None:
        item["properties"][RULES].append({"name": "own"})

    await SharedResource(cast(AzureApi, Api()), "LoadBalancer", BALANCER, {}).change(add)
    assert written == [["a", "b", "own"]]


@pytest.mark.virtual_time
async def test_interfaces_of_machines_that_come_and_go_take_no_memory() -> None:
    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return {"id": path, "etag": "1"}

    members = Members(cast(AzureApi, Api()), AzureConfig())
    for number in range(100):
        await members._write({"id": INTERFACE.format(number), "etag": "1"}, BALANCER, ())
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
    nic = INTERFACE.format("a")
    ip = {"properties": {"privateIPAddress": "10.0.0.8"}}
    profile = {"networkProfile": {"networkInterfaces": [{"id": nic}]}}
    record = {"id": f"{sets}/a/virtualMachines/0", "name": "a", "properties": profile}
    interface: Json = {"id": nic, "properties": {"ipConfigurations": [ip]}}
    machines.add([Machine(record, None, {nic.lower(): interface})])
    wanted = backends(nodes, machines, config)
    assert {name: bool(machine) for name, machine in wanted.items()} == {"n-a": True, "n-b": False}
    entry = {"name": "n-b", "properties": {"ipAddress": "10.0.0.9"}}
    pool: Json = {"properties": {"loadBalancerBackendAddresses": [entry]}}
    assert Members(api(), config).leaving(PoolMembers(pool, wanted, 4), []) == set()


def shared(there: Json, writes: list[str], listed: Sequence[Json] = ()) -> SharedResource:
    """A load balancer that is read as this, and what is written of it."""

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            if "error" in there:
                raise NotFound("ResourceNotFound")
            return there

        async def list(self, operation: str, path: str) -> Sequence[Json]:
            return listed

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            writes.append("PUT")
            return body

        async def delete(self, operation: str, path: str) -> None:
            writes.append("DELETE")

    return SharedResource(cast(AzureApi, Api()), "LoadBalancer", BALANCER, {}, is_used)


@pytest.mark.parametrize(
    ("there", "listed", "why"),
    [
        ({}, (), "not about"),
        ({"id": BALANCER.replace("kit", "other"), "etag": "1"}, (), "not about"),
        ({"id": BALANCER, "etag": "1", "properties": {RULES: None}}, (), "not understood"),
        ({"id": BALANCER, "etag": "1", "properties": {RULES: ["r"]}}, (), "not understood"),
        ({"error": 404}, [{"id": BALANCER}], "is listed"),
    ],
    ids=["empty", "another", "null", "texts", "404"],
)
@pytest.mark.parametrize("is_deleted", [True, False])
async def test_an_answer_that_lacks_what_others_have_is_not_written_back(
    there: Json, listed: Sequence[Json], why: str, is_deleted: bool
) -> None:
    """All Services share a load balancer, and all Nodes a route table."""
    writes = list[str]()

    def edit(item: Json) -> None:
        own: list[Json] = [] if is_deleted else [{"name": "own"}]
        item["properties"] = {**item.get("properties", {}), RULES: own, FRONTENDS: own}

    with pytest.raises(CloudError, match=why):
        await shared(there, writes, listed).change(edit)
    assert writes == []


async def test_what_is_empty_in_one_read_and_not_in_another_is_not_written() -> None:
    """All clients of others would be shut out, or their Nodes have no route."""
    there: Json = {"id": BALANCER, "etag": "1", "properties": {RULES: []}}
    listed, writes = [{**there, "properties": {RULES: [{"name": "theirs"}]}}], list[str]()

    def edit(item: Json) -> None:
        item["properties"] = {RULES: [{"name": "own"}]}

    with pytest.raises(RetryAfter, match="is listed otherwise"):
        await shared(there, writes, listed).change(edit)
    assert writes == []
    await shared(there, writes, [there]).change(edit)


async def test_what_lacks_entries_that_its_etag_stands_for_is_not_written() -> None:
    """The write would take away what others have, and its ETag would be the right one."""
    answers = [["a", "b", "own"], ["b", "own"], ["a", "b", "own"]]
    written = list[list[str]]()

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            names = answers.pop(0) if written else ["a", "b"]
            return {"id": BALANCER, "etag": f"{len(written)}", "properties": rules(names)}

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            written.append([rule["name"] for rule in body["properties"][RULES]])
            return {**body, "etag": f"{len(written)}"}

        async def list(self, operation: str, path: str) -> Sequence[Json]:
            listed = rules(written[-1] if written else ["a", "b"])
            return [{"id": BALANCER, "etag": f"{len(written)}", "properties": listed}]

    def rules(names: list[str]) -> Json:
        return {RULES: [{"name": name} for name in names], "provisioningState": "Succeeded"}

    def add(name: str) -> Callable[[Json], None]:
        return lambda item: item["properties"][RULES].append({"name": name})

    resource = SharedResource(cast(AzureApi, Api()), "LoadBalancer", BALANCER, {})
    await resource.change(add("own"))
    await resource.change(lambda item: None)
    await resource.change(add("new"))
    assert written == [["a", "b", "own"], ["a", "b", "own", "new"]]
    assert not answers


@pytest.mark.parametrize("is_new", [True, False])
async def test_parts_that_one_answer_mixes_up_are_not_written_back(is_new: bool) -> None:
    """Another Service's rule went, or got this one's port, and its frontend with its address."""
    theirs, current = {"name": "theirs", "properties": {"frontendPort": 80}}, list[Json]()
    mixed_up: Json = {**theirs, "properties": {"frontendPort": 443}}
    answers, etag = list[list[Json]](), 1

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return record(answers.pop(0) if answers else [theirs])

        async def list(self, operation: str, path: str) -> Sequence[Json]:
            return [record([theirs])]

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            current.append(body)
            return body

    def record(rules: list[Json]) -> Json:
        properties = {RULES: rules, "provisioningState": "Succeeded"}
        return {"id": BALANCER, "etag": f"{etag}", "properties": properties}

    def add(item: Json) -> None:
        item["properties"][RULES].append({"name": "own"})

    resource = SharedResource(cast(AzureApi, Api()), "LoadBalancer", BALANCER, {})
    if not is_new:
        await resource.change(add)
        etag += 1
    answers.append([mixed_up])
    await resource.change(add)
    assert current[-1]["properties"][RULES] == [theirs, {"name": "own"}]


async def test_an_entry_that_one_answer_made_up_does_not_stop_all_changes_for_good() -> None:
    """The write fails, and no later answer has the entry: the list says whether it is there."""
    answers, written = [["a", "made-up"]] * 2 + [["a"]] * 3, list[list[str]]()

    def record(names: list[str]) -> Json:
        return {
            "id": BALANCER,
            "etag": "1",
            "properties": {RULES: [{"name": name} for name in names]},
        }

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return record(answers.pop(0))

        async def list(self, operation: str, path: str) -> Sequence[Json]:
            return [record(["a"])]

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            written.append([rule["name"] for rule in body["properties"][RULES]])
            if "made-up" in written[-1]:
                raise CloudError("503")
            return body

    def add(item: Json) -> None:
        item["properties"][RULES].append({"name": "own"})

    resource = SharedResource(cast(AzureApi, Api()), "LoadBalancer", BALANCER, {})
    with pytest.raises(CloudError, match="503"):
        await resource.change(add)
    await resource.change(add)
    assert written == [["a", "made-up", "own"], ["a", "own"]]


async def test_anothers_resource_in_the_answer_to_a_write_is_not_taken_for_ones_own() -> None:
    """A frontend would get the address of another, and the Service's own would be released."""
    current: Json = {"id": BALANCER, "etag": "1", "properties": {RULES: [{"name": "a"}]}}

    class Api:
        async def get(self, operation: str, path: str) -> Json:
            return current

        async def list(self, operation: str, path: str) -> Sequence[Json]:
            return [current]

        async def put(self, operation: str, path: str, body: Json, etag: str) -> Json:
            current.update({**body, "etag": "2"})
            properties = {RULES: [{"name": "b"}], "provisioningState": "Succeeded"}
            return {"id": f"{BALANCER}-b", "etag": "2", "properties": properties}

    def add(item: Json) -> None:
        item["properties"][RULES].append({"name": "own"})

    resource = SharedResource(cast(AzureApi, Api()), "LoadBalancer", BALANCER, {})
    changed = await resource.change(add)
    assert changed
    assert changed["id"] == BALANCER


async def test_what_a_list_has_of_another_group_is_left_out() -> None:
    """Its addresses may be marked as a Service's of the same name in another cluster."""
    azure, other = api(), BALANCER.replace("/g/", "/other/")

    async def exchange(_: object) -> tuple[Any, HttpResponse]:
        return {"value": [{"id": BALANCER}, {"id": other}, {}]}, HttpResponse(200, "", {})

    cast(Any, azure).exchange = exchange
    path = BALANCER.rpartition("/")[0]
    assert await azure.list("ListLoadBalancers", path) == [{"id": BALANCER}]


async def test_what_was_read_without_an_etag_is_not_written() -> None:
    """A write without one goes over what others wrote meanwhile."""
    there = {"id": BALANCER, "properties": {"provisioningState": "Succeeded"}}
    with pytest.raises(CloudError, match="without its ETag"):
        await api().put("PutLoadBalancer", BALANCER, there)


def test_pools_without_number_are_not_all_compared() -> None:
    """10,000 of one name took four seconds of one turn for each Service, with 100 Nodes."""
    listed = [{"name": name, "id": f"/{at}"} for at in range(3) for name in ("p", "P", "q")]
    found = pools_of({"properties": {"backendAddressPools": listed}})
    assert found == [listed[0], listed[2]]
