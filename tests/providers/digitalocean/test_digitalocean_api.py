"""Requests and answers: pages, limits, the token, and what errors mean."""

from pathlib import Path

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.errors import (
    CloudError,
    Conflict,
    Denied,
    NoRoom,
    NotFound,
    Refused,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from ccm.http import HttpResponse
from ccm.model.cloud import Instance
from ccm.providers.digitalocean.api import DigitalOceanApi, remaining
from ccm.providers.digitalocean.config import GlobalSection
from tests.labs.digitalocean.server import BUSY, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.conftest import Started, host


def answer(status: int, body: str = "", **headers: str) -> HttpResponse:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return HttpResponse(status, "", named, body.encode())


def read(response: HttpResponse) -> object:
    """What comes of a response."""
    section = GlobalSection(token="t", api_url="http://127.0.0.1")
    return DigitalOceanApi(section, KitGate(1.0), "test").read("GetThing", response)


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (401, "Unable to authenticate you", Unauthenticated),
        (403, "You are missing the required permission droplet:read", Denied),
        (403, BUSY, RetryAfter),
        (404, "The resource you were accessing could not be found.", NotFound),
        (409, "conflict", Conflict),
        (422, "size_unit can be changed once an hour", Refused),
        (422, "load balancer limit exceeded", NoRoom),
        (429, "Too many requests", Throttled),
        (500, "Unexpected server-side error", CloudError),
        (503, "", CloudError),
    ],
)
def test_what_an_error_means(status: int, message: str, kind: type[CloudError]) -> None:
    """DO7, DO36: the API's own words are quoted."""
    with pytest.raises(kind) as raised:
        read(answer(status, f'{{"id": "x", "message": "{message}"}}'))
    assert type(raised.value) is kind
    assert str(raised.value).startswith(f"GetThing: {status} {message}".strip())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "31"}, 31.0),
        (
            {
                "date": "Tue, 24 Nov 2026 12:00:00 GMT",
                "ratelimit_remaining": "0",
                "ratelimit_reset": "1795522260",
            },
            660.0,
        ),
        ({}, None),
    ],
)
def test_a_refusal_for_rate_says_when_to_come_back(
    headers: dict[str, str], seconds: float | None
) -> None:
    """DO17: the minute's limit says it itself, of the hour's the reset does."""
    with pytest.raises(Throttled) as raised:
        read(answer(429, '{"message": "slow down"}', **headers))
    assert raised.value.seconds == seconds


async def test_what_is_left_is_reported_with_each_answer(do: DigitalOcean, cloud: Started) -> None:
    """DO16: whoever else uses the token; how the budget heeds it is tested with the budget."""
    do.remaining = 3
    await cloud.describe(node("worker"))
    calls, seconds = cloud.gate.remaining["api"]
    assert calls == 1  # two lists: of droplets, and of those with GPUs
    assert seconds == pytest.approx(600.0, abs=2.0)
    assert remaining(answer(200)) is None
    for left, reset in (("x", "1"), ("0", "nan"), ("0", "inf"), ("9" * 5000, "1")):
        reported = answer(429, ratelimit_remaining=left, ratelimit_reset=reset)
        assert remaining(reported) is None
    odd = answer(
        429, ratelimit_remaining="1", ratelimit_reset="2", date="1 Jan 99999999999 0:0 GMT"
    )
    assert remaining(odd) == (1, 0.0)


async def test_the_token_is_read_at_each_call(
    do: DigitalOcean, cloud: Started, tmp_path: Path
) -> None:
    """DO18."""
    file, worker = tmp_path / "token", host(do.add_droplet("worker"))
    file.write_text("dop_v1_revoked\n")
    config = config_of(do).replace("token = dop_v1_cluster", f"token-file = {file}")
    started = await Started(config).start()
    with pytest.raises(Denied, match="401"):
        await started.describe(worker)
    file.write_text("dop_v1_cluster\n")
    assert isinstance(await started.describe_one(worker), Instance)
    file.write_text("")
    with pytest.raises(Denied, match=r"\[Global\] token-file: the file is empty; write"):
        await started.describe(worker)
    file.unlink()
    with pytest.raises(Denied, match="cannot be read"):
        await started.describe(worker)


async def test_addresses_in_answers_are_never_followed(do: DigitalOcean, cloud: Started) -> None:
    """DO15: the server's next pages are on another host, and the token does not go there."""
    nodes = [host(do.add_droplet(f"droplet-{number}")) for number in range(201)]
    answers = await cloud.describe(*nodes)
    assert all(isinstance(one, Instance) for one in answers.values())
    assert len(do.requests) == 2


@pytest.mark.parametrize(
    "links", ["", ', "links": {}', ', "links": {"pages": {}}', ', "links": null']
)
async def test_without_a_next_page_it_is_the_last(
    do: DigitalOcean, cloud: Started, links: str
) -> None:
    """DO15."""
    do.fault = {"status": 200, "text": f'{{"droplets": [], "meta": {{"total": 0}}{links}}}'}
    await cloud.describe(node("worker"))
    assert len(do.requests) == 2


async def test_a_server_that_is_not_there_is_an_error(do: DigitalOcean) -> None:
    config = config_of(do).replace(do.url, "http://127.0.0.1:9")
    started = await Started(config).start()
    assert started.instances
    with pytest.raises(CloudError, match="ListDroplets: "):
        await invoke(started.instances.describe, [node("worker")])
