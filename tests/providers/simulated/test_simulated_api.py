"""Every status of the cloud means one thing to do."""

from pathlib import Path

import pytest
from aiohttp import web

from ccm.errors import CloudError, Denied, NoRoom, Refused, RetryAfter, Throttled
from ccm.providers.simulated.api import ApiRequest, Conflict, NotFound, SimulatedApi
from ccm.providers.simulated.config import SimulatedConfig
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.server import CloudServer

from .doubles import CountingGate


def create(name: str, **more: object) -> ApiRequest:
    body = {"name": name, **more}
    return ApiRequest("CreateLoadBalancer", "write", "POST", "/v1/load-balancers", body=body)


async def test_a_write_spends_the_write_budget_and_returns_json(
    cloud: CloudServer, api: SimulatedApi, gate: CountingGate
) -> None:
    made = await api.call(create("web"))
    assert made["name"] == "web"
    assert gate.calls == {("CreateLoadBalancer", "write"): 1}
    assert (cloud.counters.reads, cloud.counters.writes) == (0, 1)


async def test_an_answer_without_a_body_is_none(api: SimulatedApi) -> None:
    await api.call(create("web"))
    delete = ApiRequest("DeleteLoadBalancer", "write", "DELETE", "/v1/load-balancers/web")
    assert await api.call(delete) is None


async def test_a_name_that_is_taken_is_refused(api: SimulatedApi) -> None:
    await api.call(create("web"))
    with pytest.raises(Conflict, match="AlreadyExists: load balancer web exists"):
        await api.call(create("web"))


async def test_a_full_account_is_refused(cloud: CloudServer, api: SimulatedApi) -> None:
    cloud.set_parameters(max_routes=0)
    cloud.state.machines.add(Machine("a", id="m-1"))
    body = {"cidr": "10.1.0.0/24", "machine_id": "m-1"}
    with pytest.raises(NoRoom, match="QuotaExceeded"):
        await api.call(ApiRequest("CreateRoute", "write", "POST", "/v1/routes", body=body))


async def test_a_wrong_request_is_refused(api: SimulatedApi) -> None:
    with pytest.raises(Refused, match="unknown fields: colour"):
        await api.call(create("web", colour="red"))


async def test_a_balancer_at_work_says_when_to_come_back(
    cloud: CloudServer, api: SimulatedApi
) -> None:
    cloud.set_parameters(provisioning=60)
    await api.call(create("web"))
    with pytest.raises(RetryAfter) as raised:
        await api.call(
            ApiRequest("DeleteLoadBalancer", "write", "DELETE", "/v1/load-balancers/web")
        )
    assert raised.value.seconds == 1


async def test_what_is_not_there_is_absent(api: SimulatedApi) -> None:
    with pytest.raises(NotFound):
        await api.call(ApiRequest("GetLoadBalancer", "read", "GET", "/v1/load-balancers/nobody"))


async def test_a_read_only_token_is_denied_to_write(cloud: CloudServer, gate: CountingGate) -> None:
    api = SimulatedApi(SimulatedConfig(cloud.url, cloud.tokens.read_only), gate, "test")
    assert (await api.machines("names", ["a"])).not_found == {"a"}
    with pytest.raises(Denied, match="this token may only read"):
        await api.call(create("web"))
    await api.close()


async def test_a_token_exchanged_on_disk_is_taken_up_after_a_denial(
    cloud: CloudServer, gate: CountingGate, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    api = SimulatedApi(SimulatedConfig(cloud.url, "old", token_file=file), gate, "test")
    with pytest.raises(Denied):
        await api.machines("names", ["a"])
    file.write_text(f"{cloud.tokens.full}\n")
    with pytest.raises(Denied):
        await api.machines("names", ["a"])
    assert (await api.machines("names", ["a"])).not_found == {"a"}
    await api.close()


async def test_a_token_file_that_is_gone_leaves_the_old_token(
    cloud: CloudServer, gate: CountingGate, tmp_path: Path
) -> None:
    api = SimulatedApi(
        SimulatedConfig(cloud.url, "old", token_file=tmp_path / "gone"), gate, "test"
    )
    with pytest.raises(Denied):
        await api.machines("names", ["a"])
    await api.close()


async def test_the_cloud_sees_who_calls(cloud: CloudServer, gate: CountingGate) -> None:
    api = SimulatedApi(SimulatedConfig(cloud.url, cloud.tokens.full), gate, "node-0")
    await api.machines("names", ["a"])
    [call] = cloud.counters.log
    assert (call.caller, call.user_agent) == ("node-0", "ccm-supervisor")
    await api.close()


@pytest.mark.parametrize(
    ("status", "headers", "error", "seconds"),
    [
        (429, {"Retry-After": "0.5"}, Throttled, 0.5),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, Throttled, None),
        (429, {"Retry-After": "-1"}, Throttled, None),
        (429, {"Retry-After": "inf"}, Throttled, None),
        (429, {}, Throttled, None),
        (404, {}, Refused, None),
        (408, {}, CloudError, None),
        (418, {}, Refused, None),
        (302, {"Location": "/elsewhere"}, CloudError, None),
        (502, {}, CloudError, None),
    ],
)
async def test_a_strange_server_in_between_is_understood(
    gate: CountingGate,
    status: int,
    headers: dict[str, str],
    error: type[CloudError],
    seconds: float | None,
) -> None:
    paths: list[str] = []

    async def proxy(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=status, headers=headers, text="<html>proxy</html>")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = SimulatedApi(
        SimulatedConfig(f"http://127.0.0.1:{runner.addresses[0][1]}", "t"), gate, "test"
    )
    with pytest.raises(CloudError) as raised:
        await api.machines("names", ["a"])
    assert type(raised.value) is error
    assert paths == ["/v1/machines"]
    assert getattr(raised.value, "seconds", None) == seconds
    await api.close()
    await runner.cleanup()
