"""A start before an API server that is still starting itself waits for it, whatever it denies."""

import pytest
from aiohttp import web

from ccm.errors import ConfigurationFault
from ccm.kube.client import Kube, RestConfig
from ccm.settings import Settings
from ccm.supervisor.preflight import check_api_server
from ccm.tls import Server

from .api_server import Handler, failure, json_answer, text_answer

NODES: Handler = json_answer({"items": []})
READY, NOT_READY = text_answer(b"ok"), text_answer(b"[-]informer-sync failed", 500)
DENIED = (failure(403, "Forbidden"), failure(401, "Unauthorized"))


class Starting:
    """Answers with one pair after the other, for /readyz and for nodes; with the last for ever."""

    def __init__(self, *pairs: tuple[Handler, Handler]) -> None:
        self._pairs, self.asked = list(pairs), 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        ready, nodes = self._pairs[0]
        if request.path == "/readyz":
            return await ready(request)
        self.asked += 1
        if len(self._pairs) > 1:
            self._pairs.pop(0)
        return await nodes(request)


async def check(*pairs: tuple[Handler, Handler], timeout: float = 5.0) -> int:
    """How often it asked for nodes until it was content."""
    starting = Starting(*pairs)
    runner = web.AppRunner(app := web.Application())
    app.router.add_route("*", "/{path:.*}", starting.handle)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}".format(*runner.addresses[0])
    kube = Kube(RestConfig(Server(url)), "test-agent")
    try:
        await check_api_server(kube, url, Settings(), timeout)
    finally:
        await kube.close()
        await runner.cleanup()
    return starting.asked


async def test_a_server_that_is_ready_and_answers_is_asked_once() -> None:
    assert await check((READY, NODES)) == 1


@pytest.mark.parametrize("denied", DENIED)
async def test_who_is_denied_by_a_server_that_is_ready_ends_at_once(denied: Handler) -> None:
    with pytest.raises(ConfigurationFault):
        await check((READY, denied), (READY, NODES))


@pytest.mark.parametrize("denied", DENIED)
async def test_a_server_that_is_starting_denies_everybody_everything(denied: Handler) -> None:
    assert await check((denied, denied), (NOT_READY, denied), (READY, NODES)) == 3


async def test_rights_are_not_asked_of_a_server_that_has_not_read_them_all() -> None:
    assert await check((NOT_READY, NODES), (READY, NODES)) == 2


async def test_a_server_that_never_says_that_it_is_ready_is_used_in_the_end() -> None:
    assert await check((NOT_READY, NODES), timeout=0.6) > 1
    with pytest.raises(ConfigurationFault):
        await check((DENIED[0], DENIED[0]), timeout=0.6)


@pytest.mark.parametrize("silent", [failure(404, "NotFound"), DENIED[0]])
async def test_a_server_that_says_nothing_of_its_readiness_is_used_at_once(silent: Handler) -> None:
    assert await check((silent, NODES)) == 1
