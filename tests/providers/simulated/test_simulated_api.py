"""Every status of the cloud means one thing to do."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ccm.errors import CloudError, Denied, Refused, Throttled
from ccm.providers.simulated.api import Conflict, SimulatedApi

from .world import World


async def create(api: SimulatedApi, name: str, **more: object) -> Any:
    body = {"name": name, **more}
    return await api.call("CreateLoadBalancer", "POST", "/v1/load-balancers", body)


async def delete(api: SimulatedApi, name: str) -> Any:
    return await api.call("DeleteLoadBalancer", "DELETE", f"/v1/load-balancers/{name}")


async def test_a_name_that_is_taken_is_refused(w: World) -> None:
    await create(w.api, "web")
    with pytest.raises(Conflict, match="AlreadyExists: load balancer web exists"):
        await create(w.api, "web")


async def test_a_wrong_request_is_refused(w: World) -> None:
    with pytest.raises(Refused, match="unknown fields: colour"):
        await create(w.api, "web", colour="red")


async def test_a_token_exchanged_on_disk_is_taken_up_after_a_denial(
    w: World, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    api = w.client("old", token_file=file)
    with pytest.raises(Denied):
        await api.machines("names", ["a"])
    file.write_text(f"{w.cloud.token}\n")
    with pytest.raises(Denied):
        await api.machines("names", ["a"])
    assert (await api.machines("names", ["a"])).not_found == {"a"}


async def test_a_token_file_that_is_gone_leaves_the_old_token(w: World, tmp_path: Path) -> None:
    api = w.client("old", token_file=tmp_path / "gone")
    with pytest.raises(Denied):
        await api.machines("names", ["a"])


async def test_the_cloud_sees_who_calls(w: World) -> None:
    api = w.client(caller="node-0")
    await api.machines("names", ["a"])
    [call] = w.cloud.counters.log
    assert (call.caller, call.user_agent) == ("node-0", "ccm-supervisor")


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
    w: World, status: int, headers: dict[str, str], error: type[CloudError], seconds: float | None
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
    api = w.client(url=f"http://127.0.0.1:{runner.addresses[0][1]}")
    with pytest.raises(CloudError) as raised:
        await api.machines("names", ["a"])
    assert type(raised.value) is error
    assert paths == ["/v1/machines"]
    assert getattr(raised.value, "seconds", None) == seconds
    await runner.cleanup()
