"""A start before an API server that is still starting itself waits for it, whatever it denies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from ccm.errors import AccessRefused, KubernetesError
from ccm.kube.client import Kube
from ccm.settings import Settings
from ccm.supervisor.preflight import API_SERVER_TIMEOUT, check_api_server

pytestmark = pytest.mark.virtual_time

READY, NOT_READY, OK = 200, 500, 200
DENIED = (403, 401)


class Starting:
    """In place of a client: one pair of statuses after the other, for /readyz and for nodes."""

    def __init__(self, *pairs: tuple[int, int]) -> None:
        self._pairs, self.asked = list(pairs), 0

    @asynccontextmanager
    async def stream(self, path: str, *_: object, **__: object) -> AsyncIterator[None]:
        assert path == "/readyz"
        self._answer(self._pairs[0][0])
        yield

    async def request(self, *_: object, **__: object) -> None:
        self.asked += 1
        self._answer((self._pairs.pop(0) if len(self._pairs) > 1 else self._pairs[0])[1])

    def _answer(self, status: int) -> None:
        if status != OK:
            raise KubernetesError(status, "no", "no", None)


async def check(*pairs: tuple[int, int]) -> int:
    """How often it asked for nodes until it was content; the last pair holds for ever."""
    starting = Starting(*pairs)
    await check_api_server(cast(Kube, starting), "http://api", Settings())
    return starting.asked


async def test_a_server_that_is_ready_and_answers_is_asked_once() -> None:
    assert await check((READY, OK)) == 1


@pytest.mark.parametrize("denied", DENIED)
async def test_a_refusal_by_a_server_that_is_ready_is_reported_at_once(denied: int) -> None:
    with pytest.raises(AccessRefused):
        await check((READY, denied), (READY, OK))


@pytest.mark.parametrize("denied", DENIED)
async def test_a_server_that_is_starting_denies_everyone_everything(denied: int) -> None:
    assert await check((denied, denied), (NOT_READY, denied), (READY, OK)) == 3


async def test_rights_are_not_asked_of_a_server_that_has_not_read_them_all() -> None:
    assert await check((NOT_READY, OK), (READY, OK)) == 2


@pytest.mark.parametrize(("pair", "is_used"), [((NOT_READY, OK), True), ((403, 403), False)])
async def test_a_server_that_never_says_that_it_is_ready_is_used_in_the_end(
    pair: tuple[int, int], is_used: bool
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        assert await check(pair) > 1
    except AccessRefused:
        assert not is_used
    assert loop.time() - began == pytest.approx(API_SERVER_TIMEOUT, abs=0.6)


@pytest.mark.parametrize("silent", [404, 403])
async def test_a_server_that_says_nothing_of_its_readiness_is_used_at_once(silent: int) -> None:
    assert await check((silent, OK)) == 1
