"""Long lists come in pages, and nobody is lost between two of them."""

from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.server import CloudServer

from .calling import Caller


async def everything(caller: Caller, path: str) -> list[list[str]]:
    """The names of each page until there is no next one."""
    pages, token = [], ""
    while True:
        joint = "&" if "?" in path else "?"
        reply = await caller.get(path + (f"{joint}page_token={token}" if token else ""))
        pages.append(reply.names)
        token = reply.body["next_page_token"]
        if not token:
            return pages


async def test_a_list_comes_in_full_pages(cloud: CloudServer, caller: Caller) -> None:
    cloud.state.add_machines(25)
    pages = await everything(caller, "/v1/machines")
    assert [len(page) for page in pages] == [10, 10, 5]
    assert len({name for page in pages for name in page}) == 25


async def test_a_list_that_ends_with_a_page_has_no_empty_page(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.state.add_machines(20)
    assert [len(page) for page in await everything(caller, "/v1/machines")] == [10, 10]


async def test_a_smaller_limit_is_honoured_and_a_larger_is_cut(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.state.add_machines(12)
    sizes = [len(page) for page in await everything(caller, "/v1/machines?limit=5")]
    assert sizes == [5, 5, 2]
    assert len((await caller.get("/v1/machines?limit=500")).names) == 10


async def test_a_machine_dropped_between_pages_hides_no_other(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.state.add_machines(15)
    first = await caller.get("/v1/machines")
    cloud.state.machines.vanish("node-0")
    second = await caller.get(f"/v1/machines?page_token={first.body['next_page_token']}")
    assert second.names == ["node-10", "node-11", "node-12", "node-13", "node-14"]


async def test_names_with_many_machines_come_in_pages_too(
    cloud: CloudServer, caller: Caller
) -> None:
    for _ in range(12):
        cloud.state.machines.add(Machine("twin"))
    pages = await everything(caller, "/v1/machines?names=twin,nobody")
    assert [len(page) for page in pages] == [10, 2]


async def test_every_list_is_paged(cloud: CloudServer, caller: Caller) -> None:
    cloud.service.change_conditions(page=1)
    [machine] = cloud.state.add_machines(1)
    for number in range(2):
        route = {"cidr": f"10.1.{number}.0/24", "machine_id": machine.id}
        assert (await caller.post("/v1/routes", route)).status == 201
        assert (await caller.post("/v1/load-balancers", {"name": f"lb{number}"})).status == 201
    assert [len(page) for page in await everything(caller, "/v1/routes")] == [1, 1]
    assert [len(page) for page in await everything(caller, "/v1/load-balancers")] == [1, 1]
