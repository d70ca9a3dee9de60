"""Load balancers: made, changed and deleted, each of which may take its time."""

from typing import Any

import pytest

from ccm.sandbox.cloud.records import Machine, Volume
from ccm.sandbox.cloud.server import CloudServer

from .calling import Caller, HandClock

LISTENER = {"protocol": "TCP", "port": 80, "node_port": 30080}


def balancer(name: str = "web", **more: Any) -> dict[str, Any]:
    return {"name": name, "tags": {"cluster": "c"}, "listeners": [LISTENER], **more}


async def test_a_balancer_is_made_with_an_address(cloud: CloudServer, caller: Caller) -> None:
    cloud.state.machines.add(Machine("a", id="m-1"))
    body = balancer(
        hosts=["m-1"],
        scheme="internal",
        source_ranges=["10.0.0.0/8"],
        health_check={"path": "/healthz", "port": 30081},
    )
    made = await caller.post("/v1/load-balancers", body)
    assert made.status == 201
    assert made.body["state"] == "active"
    assert made.body["ip"]
    assert made.body["hostname"]
    assert {key: made.body[key] for key in body} == body
    assert (await caller.get("/v1/load-balancers/web")).body == made.body


async def test_only_the_given_fields_change(cloud: CloudServer, caller: Caller) -> None:
    cloud.state.machines.add(Machine("a", id="m-1"))
    made = await caller.post("/v1/load-balancers", balancer())
    changed = await caller.ask("PATCH", "/v1/load-balancers/web", {"hosts": ["m-1"]})
    assert changed.body == {**made.body, "hosts": ["m-1"]}


async def test_work_on_a_balancer_takes_time_and_refuses_more_work(
    cloud: CloudServer, caller: Caller, clock: HandClock
) -> None:
    cloud.service.change_conditions(provisioning=20, deletion=5)
    assert (await caller.post("/v1/load-balancers", balancer())).body["state"] == "provisioning"
    busy = await caller.ask("PATCH", "/v1/load-balancers/web", {"tags": {}})
    assert (busy.status, busy.code, busy.headers["Retry-After"]) == (409, "Busy", "1")
    clock.advance(20)
    assert (await caller.get("/v1/load-balancers/web")).body["state"] == "active"
    changed = await caller.ask("PATCH", "/v1/load-balancers/web", {"tags": {}})
    assert changed.body["state"] == "updating"
    clock.advance(20)
    assert (await caller.ask("DELETE", "/v1/load-balancers/web")).status == 204
    assert (await caller.get("/v1/load-balancers/web")).body["state"] == "deleting"
    assert (await caller.ask("DELETE", "/v1/load-balancers/web")).code == "Busy"
    clock.advance(5)
    assert (await caller.get("/v1/load-balancers/web")).status == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (balancer("web"), 409, "AlreadyExists"),
        (balancer("b", hosts=["m-404"]), 422, "NoSuchMachine"),
        (balancer("b", source_ranges=["banana"]), 400, "InvalidRequest"),
        (balancer("b", scheme="sideways"), 400, "InvalidRequest"),
        (balancer("b", listeners=[LISTENER, LISTENER]), 400, "InvalidRequest"),
        (balancer("b", listeners=[{"port": "80"}]), 400, "InvalidRequest"),
        (balancer("b", listeners={}), 400, "InvalidRequest"),
        (balancer("b", tags={"n": 1}), 400, "InvalidRequest"),
        (balancer("b", state="active"), 400, "InvalidRequest"),
        ({"tags": {}}, 400, "InvalidRequest"),
    ],
)
async def test_a_balancer_that_cannot_be_is_refused(
    caller: Caller, body: object, status: int, code: str
) -> None:
    await caller.post("/v1/load-balancers", balancer())
    reply = await caller.post("/v1/load-balancers", body)
    assert (reply.status, reply.code) == (status, code)


async def test_what_is_fixed_for_life_cannot_change(caller: Caller) -> None:
    await caller.post("/v1/load-balancers", balancer())
    reply = await caller.ask("PATCH", "/v1/load-balancers/web", {"scheme": "internal", "ip": "x"})
    assert reply.status == 400
    assert "ip, scheme" in reply.body["error"]["message"]


async def test_the_account_has_room_for_so_many(cloud: CloudServer, caller: Caller) -> None:
    cloud.service.change_conditions(max_load_balancers=1)
    await caller.post("/v1/load-balancers", balancer("a"))
    reply = await caller.post("/v1/load-balancers", balancer("b"))
    assert (reply.status, reply.code) == (422, "QuotaExceeded")


async def test_what_does_not_exist_is_not_found(caller: Caller) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        reply = await caller.ask(method, "/v1/load-balancers/nobody", {})
        assert (reply.status, reply.code) == (404, "NotFound")


async def test_a_body_that_is_not_json_is_refused(cloud: CloudServer, caller: Caller) -> None:
    async with caller._session.post(
        f"{cloud.url}/v1/load-balancers", data=b"{", headers={"Authorization": "Bearer sandbox"}
    ) as response:
        assert response.status == 400


async def test_volumes_are_found_by_id(cloud: CloudServer, caller: Caller) -> None:
    cloud.state.add_volume(Volume("vol-1", zones=("zone-a", "zone-b")))
    reply = await caller.get("/v1/volumes?ids=vol-1,vol-2")
    assert reply.body["not_found"] == ["vol-2"]
    [volume] = reply.body["items"]
    assert (volume["zones"], volume["region"]) == (["zone-a", "zone-b"], "region-1")
    assert len((await caller.get("/v1/volumes")).body["items"]) == 1
