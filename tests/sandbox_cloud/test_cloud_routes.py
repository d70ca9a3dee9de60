"""Routes: unique, up to a quota, and a blackhole once their machine is gone."""

from typing import Any

import pytest

from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.server import CloudServer

from .calling import Caller


@pytest.fixture(autouse=True)
def machine(cloud: CloudServer) -> Machine:
    return cloud.state.machines.add(Machine("a", id="m-1"))


def route(cidr: str = "10.1.0.0/24", **more: Any) -> dict[str, Any]:
    return {"cidr": cidr, "machine_id": "m-1", **more}


async def test_a_route_is_created_listed_and_deleted(caller: Caller) -> None:
    made = await caller.post("/v1/routes", route(name="r", tags={"cluster": "c"}))
    assert made.status == 201
    assert (await caller.get("/v1/routes")).body["items"] == [made.body]
    assert made.body["state"] == "active"
    assert made.body["tags"] == {"cluster": "c"}
    assert (await caller.ask("DELETE", f"/v1/routes/{made.body['id']}")).status == 204
    assert (await caller.get("/v1/routes")).body["items"] == []
    again = await caller.ask("DELETE", f"/v1/routes/{made.body['id']}")
    assert (again.status, again.code) == (404, "NotFound")


async def test_a_network_is_kept_in_its_canonical_spelling(caller: Caller) -> None:
    made = await caller.post("/v1/routes", route("fd00:0:0:1::/64"))
    assert made.body["cidr"] == "fd00:0:0:1::/64"
    other = await caller.post("/v1/routes", route("FD00:0000:0000:0001:0:0:0:0/64", name="other"))
    assert (other.status, other.code) == (409, "NetworkInUse")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (route(name="first"), 409, "AlreadyExists"),
        (route("10.9.0.0/24"), 409, "NetworkInUse"),
        (route("10.2.0.0/24", machine_id="m-404"), 422, "NoSuchMachine"),
        (route("10.2.0.7/24"), 400, "InvalidRequest"),
        (route("banana"), 400, "InvalidRequest"),
        (route("10.2.0.0/24", colour="red"), 400, "InvalidRequest"),
        (route("10.2.0.0/24", id="mine"), 400, "InvalidRequest"),
        ({"cidr": "10.2.0.0/24"}, 400, "InvalidRequest"),
        ([], 400, "InvalidRequest"),
        (None, 400, "InvalidRequest"),
    ],
)
async def test_a_route_that_cannot_be_is_refused(
    caller: Caller, body: object, status: int, code: str
) -> None:
    await caller.post("/v1/routes", route("10.9.0.0/24", name="first"))
    reply = await caller.post("/v1/routes", body)
    assert (reply.status, reply.code) == (status, code)


async def test_a_full_route_table_says_so(cloud: CloudServer, caller: Caller) -> None:
    cloud.service.change_conditions(max_routes=1)
    await caller.post("/v1/routes", route())
    reply = await caller.post("/v1/routes", route("10.2.0.0/24"))
    assert (reply.status, reply.code) == (422, "QuotaExceeded")
    assert reply.body["error"]["message"] == "1 of 1 routes are used"


@pytest.mark.parametrize("end", ["terminate", "vanish"])
async def test_the_end_of_a_machine_makes_its_routes_blackholes(
    cloud: CloudServer, caller: Caller, end: str
) -> None:
    await caller.post("/v1/routes", route())
    getattr(cloud.state.machines, end)("m-1")
    [item] = (await caller.get("/v1/routes")).body["items"]
    assert (item["state"], item["machine_id"]) == ("blackhole", "m-1")


async def test_a_stopped_machine_keeps_its_routes(cloud: CloudServer, caller: Caller) -> None:
    await caller.post("/v1/routes", route())
    cloud.state.machines.stop("m-1")
    [item] = (await caller.get("/v1/routes")).body["items"]
    assert item["state"] == "active"
