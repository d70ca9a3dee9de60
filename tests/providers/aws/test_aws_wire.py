"""Answers that are none, or do not end: an error of the cloud each, and never a wrong belief."""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest
from botocore.awsrequest import AWSHTTPSConnection
from urllib3.exceptions import HTTPError

from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import CloudError, Denied, Refused
from ccm.http import BODY_LIMIT
from ccm.processes import resident_bytes
from ccm.providers.aws import client
from ccm.providers.aws.wire import limit_time, time_limit
from tests.integration.https.hostile_tls import is_left_after_tickets
from tests.providers.aws.proxy import Drip, Flood, Reply, Request
from tests.providers.aws.world import Aws, asking, node, node_of
from tests.support.deadlines import timeout, within
from tests.support.pki import Authority

OTHER = b'<DescribeRegionsResponse xmlns="x"><regionInfo/></DescribeRegionsResponse>'
PAGE = "<DescribeInstancesResponse><reservationSet/>{more}</DescribeInstancesResponse>"
BODIES = {
    "nothing": b"",
    "HTML": b"<!DOCTYPE html><html><body>Sign in</body></html>",
    "XML of a page": b"<html><body/></html>",
    "another action": OTHER,
    "cut": b"<{name}Response><{name}Result>",
    "hollow": b"<{name}Response></{name}Response>",
}


def answering(aws: Aws, body: str, operation: str = "") -> None:
    """Have every answer, or only that to one operation, be a success with this body."""

    def rewrite(request: Request, answer: bytes) -> bytes:
        name = request.operation
        is_meant = operation in ("", request.name)
        return BODIES[body].replace(b"{name}", name.encode()) if is_meant else answer

    aws.proxy.rewrite = rewrite


@pytest.mark.parametrize("body", BODIES)
async def test_a_success_that_is_no_answer_is_an_error_and_no_one_is_gone_injected(
    aws: Aws, body: str
) -> None:
    (made,) = aws.launch()
    one, other = node_of(made, ["10.244.0.0/24"]), asking("nlb")
    await aws.ensure(other)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: aws.describe(one),
        lambda: aws.describe(node(made["PrivateDnsName"])),
        lambda: aws.list_routes(one),
        lambda: aws.ensure(asking("nlb", "new"), [one]),
        lambda: aws.ensure(asking("classic", "classic"), [one]),
        lambda: aws.update_nodes(other, [one]),
        lambda: aws.delete(other),
    ]
    answering(aws, body)
    aws.proxy.requests = []
    for ask in asked:
        with pytest.raises(CloudError) as raised:
            await ask()
        assert not isinstance(raised.value, Refused | Denied)
    assert aws.proxy.writes() == []


@pytest.mark.parametrize("kind", ["nlb", "classic"])
async def test_one_odd_answer_among_good_ones_is_an_error_of_the_cloud_injected(
    aws: Aws, kind: str
) -> None:
    nodes = [node_of(one) for one in aws.launch()]
    await aws.ensure(asking(kind, "first"), nodes)
    made = sorted(aws.proxy.counted())
    for number, operation in enumerate(made):
        aws.proxy.reset()
        answering(aws, "hollow", operation)
        one = asking(kind, f"web-{number}")
        with suppress(CloudError):  # some have nothing to say, and pass when they are hollow
            await aws.ensure(one, nodes)
        aws.proxy.reset()
        await aws.ensure(one, nodes)


@pytest.mark.parametrize("drip", [Drip(), Drip(is_head=True)])
async def test_an_answer_that_never_ends_is_given_up_with_its_thread_injected(
    aws: Aws, drip: Drip
) -> None:
    await aws.start(f"CallTimeout = {timeout(0.5):g}s")
    (made,) = aws.launch()
    await aws.describe(node_of(made))
    with aws.proxy.fault("DescribeInstances", drip):
        answers = [aws.describe(node_of(made)) for _ in range(8)]
        async with within():
            failures = await asyncio.gather(*answers, return_exceptions=True)
    assert {type(failure) for failure in failures} == {CloudError}
    await aws.describe(node_of(made))


async def test_tls_without_data_is_given_up_with_its_thread(tmp_path: Path) -> None:
    """In one call, OpenSSL goes through what is no data for as long as more of it comes."""
    authority, limit = Authority("ours"), timeout(0.5)
    (tmp_path / "ca").write_bytes(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("localhost").write(tmp_path, "server"))
    limit_time()

    def ask(port: int) -> None:
        connection = AWSHTTPSConnection(
            "localhost", port, timeout=limit, ca_certs=str(tmp_path / "ca")
        )
        with closing(connection), time_limit(limit):
            connection.request("GET", "/")
            connection.getresponse()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = listening, context, 5_000, tmp_path / "keys"
        serving = asyncio.create_task(asyncio.to_thread(is_left_after_tickets, *arguments))
        with pytest.raises((OSError, HTTPError)):
            await asyncio.to_thread(ask, listening.getsockname()[1])
        assert await serving


async def test_comments_before_an_answer_keep_no_process_busy_injected(aws: Aws) -> None:
    (made,) = aws.launch()
    began = time.process_time()
    with (
        aws.proxy.fault("DescribeInstances", Reply("<!---->" * 26 + "<other/>")),
        pytest.raises(CloudError, match="this is not an answer to DescribeInstances"),
    ):
        await aws.describe(node_of(made))
    assert time.process_time() - began < CPU_SECONDS


@pytest.mark.parametrize("written", ["1." * 300_000, "inf", "-1e18", "9" * 5000])
async def test_a_time_that_is_none_keeps_no_process_busy_injected(aws: Aws, written: str) -> None:
    """botocore's parser takes the square of its length."""
    (made,) = aws.launch()
    began = time.process_time()
    instance = f"<instancesSet><item><launchTime>{written}</launchTime></item></instancesSet>"
    reply = f"<reservationSet><item>{instance}</item></reservationSet>"
    with (
        aws.proxy.fault("DescribeInstances", Reply(f"<DescribeInstancesResponse>{reply}"
        "</DescribeInstancesResponse>")),
        pytest.raises(CloudError, match=r"DescribeInstances: .*time"),
    ):  # fmt: skip
        await aws.describe(node_of(made))
    assert time.process_time() - began < CPU_SECONDS


async def test_an_answer_of_any_size_takes_no_more_memory_than_one_may_injected(aws: Aws) -> None:
    (made,) = aws.launch()
    before = resident_bytes()
    with (
        aws.proxy.fault("DescribeInstances", Flood()),
        pytest.raises(CloudError, match="more than 67108864 bytes"),
    ):
        await aws.describe(node_of(made))
    assert resident_bytes() - before < 2.5 * BODY_LIMIT


async def test_a_list_whose_pages_never_end_is_given_up_injected(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_PAGES", 5)
    (made,) = aws.launch()
    numbers = count()

    def page(_: Request) -> Reply:
        number = next(numbers)
        more = f"<nextToken>{number}</nextToken>" if number < 20 else ""
        return Reply(PAGE.format(more=more))

    aws.proxy.rule = page
    with pytest.raises(CloudError, match="more than 5 pages"):
        await aws.describe(node(made["PrivateDnsName"]))


async def test_the_pages_of_a_list_take_together_no_more_memory_than_one_may_injected(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_VALUES", 100)
    (made,) = aws.launch()
    numbers = count()

    def page(_: Request) -> Reply:
        return Reply(PAGE.format(more=f"<nextToken>{next(numbers)}</nextToken>"))

    aws.proxy.rule = page
    with pytest.raises(CloudError, match="more than 100 elements"):
        await aws.describe(node(made["PrivateDnsName"]))
    assert next(numbers) < 100
