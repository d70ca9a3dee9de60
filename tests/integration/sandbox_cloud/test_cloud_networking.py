"""Load balancers, which take their time, and routes, which are blackholes without their machine."""

from typing import Any

import pytest

from ccm.sandbox.cloud.records import Machine

from .conftest import Cloud, HandClock

LISTENER = {"protocol": "TCP", "port": 80, "node_port": 30080}


@pytest.fixture(autouse=True)
def machine(cloud: Cloud) -> Machine:
    return cloud.state.machines.add(Machine("a", id="m-1"))


def balancer(name: str = "web", **more: Any) -> dict[str, Any]:
    return {"name": name, "tags": {"cluster": "c"}, "listeners": [LISTENER], **more}


def route(cidr: str = "10.1.0.0/24", **more: Any) -> dict[str, Any]:
    return {"cidr": cidr, "machine_id": "m-1", **more}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("load-balancers", balancer("web"), 409, "AlreadyExists"),
        ("load-balancers", balancer("b", hosts=["m-404"]), 422, "NoSuchMachine"),
        ("load-balancers", balancer("b", source_ranges=["banana"]), 400, "InvalidRequest"),
        ("load-balancers", balancer("b", scheme="sideways"), 400, "InvalidRequest"),
        ("load-balancers", balancer("b", listeners=[LISTENER, LISTENER]), 400, "InvalidRequest"),
        ("routes", route("10.1.0.0/24", name="first"), 409, "AlreadyExists"),
        ("routes", route("10.9.0.0/24"), 409, "NetworkInUse"),
        ("routes", route("10.2.0.0/24", machine_id="m-404"), 422, "NoSuchMachine"),
        ("routes", route("10.2.0.7/24"), 400, "InvalidRequest"),
        ("routes", b"{", 400, "InvalidRequest"),
    ],
)
async def test_what_cannot_be_is_refused(
    cloud: Cloud, path: str, body: object, status: int, code: str
) -> None:
    await cloud.post("/v1/load-balancers", balancer())
    await cloud.post("/v1/routes", route("10.9.0.0/24", name="first"))
    reply = await cloud.post(f"/v1/{path}", body)
    assert (reply.status, reply.code) == (status, code)


async def test_only_the_given_fields_change_and_some_never(cloud: Cloud) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        nobody = await cloud.ask(method, "/v1/load-balancers/nobody", {})
        assert (nobody.status, nobody.code) == (404, "NotFound")
    made = await cloud.post("/v1/load-balancers", balancer())
    changed = await cloud.ask("PATCH", "/v1/load-balancers/web", {"hosts": ["m-1"]})
    assert changed.body == {**made.body, "hosts": ["m-1"]}
    fixed = await cloud.ask("PATCH", "/v1/load-balancers/web", {"scheme": "internal", "ip": "x"})
    assert fixed.status == 400
    assert "ip, scheme" in fixed.body["error"]["message"]


async def test_work_on_a_balancer_takes_time_and_refuses_more_work(
    cloud: Cloud, clock: HandClock
) -> None:
    cloud.set_parameters(provisioning=20, deletion=5)
    assert (await cloud.post("/v1/load-balancers", balancer())).body["state"] == "provisioning"
    busy = await cloud.ask("PATCH", "/v1/load-balancers/web", {"tags": {}})
    assert (busy.status, busy.code, busy.headers["Retry-After"]) == (409, "Busy", "1")
    clock.advance(20)
    assert (await cloud.get("/v1/load-balancers/web")).body["state"] == "active"
    changed = await cloud.ask("PATCH", "/v1/load-balancers/web", {"tags": {}})
    assert changed.body["state"] == "updating"
    clock.advance(20)
    assert (await cloud.ask("DELETE", "/v1/load-balancers/web")).status == 204
    assert (await cloud.get("/v1/load-balancers/web")).body["state"] == "deleting"
    assert (await cloud.ask("DELETE", "/v1/load-balancers/web")).code == "Busy"
    clock.advance(5)
    assert (await cloud.get("/v1/load-balancers/web")).status == 404


async def test_a_network_is_kept_in_its_canonical_spelling(cloud: Cloud) -> None:
    made = await cloud.post("/v1/routes", route("fd00:0:0:1::/64"))
    assert made.body["cidr"] == "fd00:0:0:1::/64"
    other = await cloud.post("/v1/routes", route("FD00:0000:0000:0001:0:0:0:0/64", name="other"))
    assert (other.status, other.code) == (409, "NetworkInUse")


@pytest.mark.parametrize(
    ("action", "state"), [("terminate", "blackhole"), ("vanish", "blackhole"), ("stop", "active")]
)
async def test_the_end_of_a_machine_makes_its_routes_blackholes(
    cloud: Cloud, action: str, state: str
) -> None:
    await cloud.post("/v1/routes", route())
    getattr(cloud.state.machines, action)("m-1")
    [item] = (await cloud.get("/v1/routes")).body["items"]
    assert (item["state"], item["machine_id"]) == (state, "m-1")
