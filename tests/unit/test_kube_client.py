"""Requests to the Kubernetes API: deadlines, obedience to 429, typed failures."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import web

from ccm.errors import KubernetesError, Unreachable
from ccm.http import HttpResponse
from ccm.kube.client import JSON_PATCH, Kube, RateLimit, RestConfig, _failure
from tests.support.deadlines import timeout, within
from tests.support.waiting import until

from .api_server import failure, json_answer, reset, serving, silence, text_answer

NODE = {"metadata": {"name": "n1"}}


async def test_an_answer_is_decoded() -> None:
    async with serving(json_answer(NODE)) as (server, kube):
        assert await kube.get("/api/v1/nodes/n1", {"limit": "5"}) == NODE
        (request,) = server.requests
        assert (request.method, request.path_qs) == ("GET", "/api/v1/nodes/n1?limit=5")
        assert request.headers["User-Agent"] == "test-agent"
        assert "Authorization" not in request.headers


async def test_a_token_that_cannot_be_sent_is_no_way_to_the_server() -> None:
    async def token() -> str:
        return "half\nanother"

    async with serving(json_answer(NODE)) as (server, kube):
        ours = Kube(RestConfig(kube.config.server, token), "test-agent")
        with pytest.raises(Unreachable, match="not printable") as error:
            await ours.get("/api")
        await ours.close()
        assert "half" not in str(error.value)
        assert server.requests == []


async def test_a_body_is_sent_with_its_type() -> None:
    async with serving(json_answer(NODE)) as (server, kube):
        patch = [{"op": "remove", "path": "/spec/taints"}]
        await kube.patch("/api/v1/nodes/n1", JSON_PATCH, patch)
        await kube.post("/api/v1/nodes", NODE)
        await kube.put("/api/v1/nodes/n1", NODE)
        assert [request.method for request in server.requests] == ["PATCH", "POST", "PUT"]
        types = [request.headers["Content-Type"] for request in server.requests]
        assert types == [JSON_PATCH, "application/json", "application/json"]
        assert [orjson.loads(body) for body in server.bodies] == [patch, NODE, NODE]
        assert kube.writes == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 500, 503])
async def test_an_error_answer_is_an_error_with_the_servers_words(status: int) -> None:
    async with serving(failure(status, "Why", "what is wrong")) as (server, kube):
        with pytest.raises(KubernetesError) as raised:
            await kube.get("/api")
        error = raised.value
        assert (error.status, error.reason, error.message) == (status, "Why", "what is wrong")
        assert len(server.requests) == 1


@pytest.mark.parametrize("text", [b"Bad Gateway <html>", b"", b"[1]", b"\xff"])
async def test_an_error_answer_that_is_not_kubernetes_is_reported_too(text: bytes) -> None:
    async with serving(text_answer(text, 502)) as (_, kube):
        with pytest.raises(KubernetesError) as raised:
            await kube.get("/api")
        assert (raised.value.status, raised.value.reason) == (502, "Bad Gateway")


@pytest.mark.parametrize("text", [b"<html>", b"", b"[1]", b'"x"', b'{"half":'])
async def test_an_answer_that_is_not_an_object_is_no_answer(text: bytes) -> None:
    async with serving(text_answer(text)) as (_, kube):
        with pytest.raises(Unreachable, match=r"GET /api: the answer is not (JSON|a JSON object)"):
            await kube.get("/api")


# No answer.


async def test_a_silent_server_is_given_up_at_the_deadline() -> None:
    async with serving(silence) as (_, kube):
        with pytest.raises(Unreachable, match=r"no answer within 0\.1 s"):
            async with within():
                await kube.request("GET", "/api", timeout=0.1)


async def test_a_broken_connection_is_no_answer() -> None:
    async with serving(reset) as (_, kube):
        with pytest.raises(Unreachable, match="PATCH /api"):
            await kube.patch("/api", JSON_PATCH, [])


async def test_waiting_for_a_free_slot_is_part_of_the_deadline() -> None:
    async with serving(silence) as (server, _):
        narrow = server.kube(in_flight=1)
        first = asyncio.create_task(narrow.request("GET", "/first", timeout=timeout()))
        await until(lambda: server.requests)
        with pytest.raises(Unreachable, match="no answer within"):
            await narrow.request("GET", "/second", timeout=0.05)
        assert len(server.requests) == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await narrow.close()


async def test_few_requests_are_in_flight_whatever_the_demand() -> None:
    released = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return await json_answer(NODE)(request)

    async with serving(slow) as (server, _):
        narrow = server.kube(in_flight=3)
        asked = [asyncio.create_task(narrow.get("/api")) for _ in range(12)]
        await until(lambda: server.busy == 3)
        released.set()
        await asyncio.gather(*asked)
        assert server.most_busy == 3
        await narrow.close()


# 429: the server's flow control.


@asynccontextmanager
async def slowed_down(kube: Kube, method: str, path: str) -> AsyncIterator[None]:
    """During the block a request waits, as the server answered that it is busy."""
    asking = asyncio.create_task(kube.request(method, path, timeout=timeout()))
    await until(lambda: kube._throttled_until)
    yield
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    busy = failure(429, "TooManyRequests", Retry_After="1")
    async with serving(busy, json_answer(NODE)) as (server, kube):
        began = time.monotonic()
        assert await kube.request("GET", "/api", timeout=timeout()) == NODE
        assert time.monotonic() - began >= 1.0
        assert len(server.requests) == 2


async def test_while_the_server_is_busy_no_one_else_asks_it_either() -> None:
    busy = failure(429, "TooManyRequests", Retry_After="3600")
    async with serving(busy) as (server, kube), slowed_down(kube, "GET", "/api"):
        for _ in range(3):
            with pytest.raises(Unreachable, match=r"no answer within 0\.05 s"):
                await kube.request("GET", "/api", timeout=0.05)
        assert len(server.requests) == 1


async def test_no_server_sends_us_away_for_an_hour() -> None:
    busy = failure(429, "TooManyRequests", Retry_After="3600")
    async with serving(busy, json_answer(NODE)) as (server, _):
        kube = Kube(server.config, "test-agent", longest_pause=0.01)
        assert await kube.request("PATCH", "/api", timeout=timeout()) == NODE
        await kube.close()


async def test_what_is_slowed_down_in_a_lane_holds_up_no_one_else() -> None:
    busy = failure(429, "TooManyRequests", Retry_After="3600")
    async with serving(busy, json_answer(NODE)) as (server, kube):
        lane = kube.lane()
        async with slowed_down(lane, "POST", "/events"):
            with pytest.raises(Unreachable):
                await lane.request("POST", "/events", timeout=0.05)
            assert await kube.request("PATCH", "/api", timeout=timeout()) == NODE
        assert len(server.requests) == 2
        assert (lane.writes, kube.writes) == (1, 1)


async def test_a_server_that_stays_busy_is_given_up_with_its_own_words() -> None:
    async with serving(failure(429, "TooManyRequests", Retry_After="7")) as (server, _):
        kube = Kube(server.config, "test-agent", max_attempts=1)
        with pytest.raises(KubernetesError) as raised:
            await kube.get("/api")
        await kube.close()
        assert (raised.value.status, raised.value.retry_after) == (429, 7.0)
        assert len(server.requests) == 1


@pytest.mark.parametrize("after", ["soon", "", "Wed, 21 Oct 2026 07:28:00 GMT", "-5"])
async def test_an_odd_word_on_when_to_come_back_is_no_word(after: str) -> None:
    async with serving(failure(503, "Busy", Retry_After=after)) as (_, kube):
        with pytest.raises(KubernetesError) as raised:
            await kube.get("/api")
        assert raised.value.retry_after is None


def test_a_digit_of_another_script_is_no_word_either() -> None:
    response = HttpResponse(429, "x", {b"retry-after": b"\xb2"}, b"{}")
    assert _failure(response, "/").retry_after is None


# The --kube-api flags.


@pytest.mark.virtual_time
async def test_a_rate_limit_lets_the_burst_through_and_then_paces() -> None:
    loop, limit = asyncio.get_running_loop(), RateLimit(per_second=100.0, burst=5)
    began, passed = loop.time(), []
    for _ in range(10):
        await limit.wait()
        passed.append(loop.time() - began)
    assert passed == pytest.approx([0.0] * 5 + [0.01, 0.02, 0.03, 0.04, 0.05], abs=1e-3)


@pytest.mark.virtual_time
async def test_a_rate_limit_without_a_burst_still_lets_one_through() -> None:
    loop, limit = asyncio.get_running_loop(), RateLimit(per_second=0.01, burst=0)
    began = loop.time()
    await limit.wait()
    assert loop.time() == pytest.approx(began, abs=1e-3)


@pytest.mark.parametrize("turns", range(16))
async def test_a_client_closes_whatever_connects_meanwhile(turns: int) -> None:
    async with serving(json_answer({})) as (server, _):
        kube = server.kube()
        async with kube.stream("/watch", {}, timeout()):
            asking = asyncio.create_task(kube.get("/late"))
            for _ in range(turns):  # of the loop, in one of which the second connection is there
                await asyncio.sleep(0)
            async with within():
                await kube.close()
        await asyncio.gather(asking, return_exceptions=True)
