"""What holds for every provider whose cloud speaks JSON over HTTP, as all are on one transport."""

import asyncio
import math
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
import pytest

from ccm.cloud import json_api, lookup
from ccm.cloud.credentials import RenewedToken
from ccm.cloud.failures import Unsent
from ccm.cloud.json_api import JsonApi, ReloadingClient, Request
from ccm.cloud.lookup import MAX_PARTS
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import (
    CloudError,
    Denied,
    NotFound,
    Refused,
    RetryAfter,
    Throttled,
    Unanswered,
)
from ccm.http import HttpResponse
from ccm.model.objects import Json
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.identity import read_token as read_azure_token
from ccm.providers.digitalocean.api import DigitalOceanApi
from ccm.providers.digitalocean.config import GlobalSection as DigitalOceanSection
from ccm.providers.digitalocean.volumes import DigitalOceanVolumes
from ccm.providers.gce.api import GceApi
from ccm.providers.gce.config import GlobalSection as GceSection
from ccm.providers.gce.lb.observed import ADDRESS
from ccm.providers.gce.lb.parts import Parts
from ccm.providers.gce.volumes import GceVolumes
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import Remote
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.config import OpenStackConfig
from ccm.providers.openstack.credentials import GlobalSection as OpenStackSection
from ccm.providers.openstack.keystone import Token, read_token
from ccm.providers.openstack.lb.networks import Networks
from ccm.providers.proxmox.api import ProxmoxApi
from ccm.providers.proxmox.config import Cluster
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import SimulatedConfig
from ccm.providers.vsphere.config import VCenter
from ccm.providers.vsphere.connections import Connections
from ccm.providers.vsphere.credentials import CredentialSource
from ccm.providers.vsphere.vcenter import VCenterApi
from ccm.redaction import safe_text
from ccm.tls import Server
from tests.support.pki import Authority
from tests.support.waiting import until
from tests.unit.raw_http import CLOSE, RawServer

HUGE = "\x1b[31mbroken\n" * 500_000  # characters of an error, most of which nobody wants to read


def azure(url: str, ca_file: str) -> JsonApi:
    config = AzureConfig(ca_file=ca_file, use_managed_identity_extension=True)
    return AzureApi(config, lambda: config, KitGate(10.0), "test")


def openstack(url: str, ca_file: str) -> JsonApi:
    config = OpenStackConfig(OpenStackSection(auth_url=url, ca_file=ca_file))
    return OpenStackApi(config, lambda: config, KitGate(10.0), "test")


def vsphere(url: str, ca_file: str) -> JsonApi:
    parts = urlsplit(url)
    vcenter = VCenter("lab", parts.hostname or "", parts.port or 443, ca_file=ca_file)
    return VCenterApi(vcenter, CredentialSource(vcenter, None), KitGate(10.0), "test")


def proxmox(url: str, ca_file: str) -> JsonApi:
    cluster = Cluster("one", (url,), ca_file, token_id="a@b!c", token_secret="s")
    return ProxmoxApi(cluster, KitGate(10.0), "test")


APIS: dict[str, Callable[[str, str], JsonApi]] = {
    "azure": azure,
    "digitalocean": lambda url, ca_file: DigitalOceanApi(
        DigitalOceanSection(token="t", api_url=url, ca_file=ca_file), KitGate(10.0), "test"
    ),
    "incus": lambda url, ca_file: IncusApi("", Remote(url, "", "", ca_file), KitGate(10.0), "test"),
    "openstack": openstack,
    "proxmox": proxmox,
    "simulated": lambda url, ca_file: SimulatedApi(
        SimulatedConfig(url, "t"), KitGate(10.0), "test"
    ),
    "vsphere": vsphere,
}
TRUSTING = [name for name in APIS if name != "simulated"]  # which has no certificate to name
SUCCESS = orjson.dumps({"type": "sync", "metadata": {}, "data": {}, "value": {}})
every_api = pytest.mark.parametrize("make", APIS.values(), ids=APIS)


def answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} said so", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class Cloud:
    """A server of HTTPS, whose certificate may be exchanged, and the file that clients trust."""

    directory: Path
    server: RawServer = field(default_factory=RawServer)
    context: ssl.SSLContext = field(default_factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    url: str = ""

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    def show(self, authority: Authority) -> None:
        """Have a certificate of this authority from now on."""
        self.context.load_cert_chain(*authority.server("localhost").write(self.directory, "own"))

    def trust(self, authority: Authority) -> None:
        self.ca_file.write_bytes(authority.pem)
        os.utime(self.ca_file, ns=(1, 1 + int.from_bytes(authority.pem[-40:-32], "big") % 10**9))

    async def ask(self, api: JsonApi, *responses: bytes) -> object:
        """The result of a GET that gets these, each on a connection of its own."""
        self.server.responses = [[one, CLOSE] for one in responses]
        request = Request("GetThing", "read", "GET", "/x", url=self.url)
        result, _ = await api.exchange(request)
        return result


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Cloud]:
    made = Cloud(tmp_path)
    made.show(authority := Authority("first"))
    made.trust(authority)
    async with made.server.listening(made.context) as port:
        made.url = f"https://localhost:{port}"
        yield made


@pytest.mark.parametrize("name", TRUSTING)
async def test_a_renewed_certificate_is_taken_up_with_its_file(cloud: Cloud, name: str) -> None:
    """By the client that is there: no worker is replaced for it."""
    api, renewed = APIS[name](cloud.url, str(cloud.ca_file)), Authority("renewed")
    await cloud.ask(api, answer(200, SUCCESS))
    cloud.show(renewed)
    with pytest.raises(CloudError, match="the certificate is not trusted"):
        await cloud.ask(api, answer(200, SUCCESS))
    cloud.trust(renewed)
    await cloud.ask(api, answer(200, SUCCESS))
    await api.close()


@pytest.mark.parametrize("name", TRUSTING)
async def test_of_a_chain_behind_the_servers_own_certificate_nothing_else_is_trusted(
    cloud: Cloud, name: str
) -> None:
    """Whoever has a certificate of the same authority, for any host, would get the credentials."""
    authority = Authority("of many")
    own = authority.server("elsewhere")
    cloud.context.load_cert_chain(*own.write(cloud.directory, "own"))
    cloud.ca_file.write_bytes(own.pem + authority.pem)
    api = APIS[name](cloud.url, str(cloud.ca_file))
    await cloud.ask(api, answer(200, SUCCESS))
    another = authority.server("localhost")
    cloud.context.load_cert_chain(*another.write(cloud.directory, "another"))
    with pytest.raises(CloudError, match="the certificate is not trusted"):
        await cloud.ask(api, answer(200, SUCCESS))
    assert len(cloud.server.requests) == 1
    await api.close()


@pytest.mark.parametrize("name", TRUSTING)
async def test_a_redirection_to_another_host_is_not_followed(cloud: Cloud, name: str) -> None:
    api = APIS[name](cloud.url, str(cloud.ca_file))
    moved = answer(302, b"{}", f"Location: {cloud.url}/elsewhere")
    with pytest.raises(CloudError, match="302"):
        await cloud.ask(api, moved, answer(200, SUCCESS))
    assert len(cloud.server.requests) == 1
    await api.close()


async def test_a_catalogue_of_other_servers_each_time_takes_no_memory(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_api, "MAX_SERVERS", 3)
    api = openstack(cloud.url, str(cloud.ca_file))
    for number in range(10):
        url = f"{cloud.url}/v2.{number}"
        cloud.server.responses = [[answer(200, b"{}"), CLOSE]]
        await api.attempt(Request("GetThing", "compute", "GET", "/x", url=url))
    assert len(api._clients) == 3
    await api.close()


async def test_a_stream_of_events_is_not_redirected(cloud: Cloud) -> None:
    """Not to another scheme either, where nothing would say who answers."""
    api, elsewhere = (
        IncusApi("", Remote(cloud.url, "", "", str(cloud.ca_file)), KitGate(10.0), ""),
        RawServer(),
    )
    async with elsewhere.listening() as port:
        place = f"Location: http://localhost:{port}/1.0/events"
        cloud.server.responses = [[answer(307, b"", place), CLOSE]]
        with pytest.raises(CloudError, match="307"):
            async with api.listen("default"):
                raise AssertionError
        assert elsewhere.requests == []
    await api.close()


@pytest.mark.parametrize("name", TRUSTING)
async def test_a_broken_connection_is_distinguished_from_one_that_was_never_made(
    cloud: Cloud, name: str
) -> None:
    """After the first nobody knows whether a write was made; after the second it was not."""
    api = APIS[name](cloud.url, str(cloud.ca_file))
    with pytest.raises(Unanswered):
        await cloud.ask(api, b"")
    await api.close()


NUMBERS = (
    "9" * 5000,
    "1" * 2000,
    "-1",
    "nan",
    "1e999",
    "\xb2",
    "0Min;0",
    "Sun, 1 Jan 99999999999 0:0 GMT",
)
HEADERS = (
    "Date", "Retry-After", "RateLimit-Remaining", "RateLimit-Reset", "ETag", "Set-Cookie",
    "x-ms-ratelimit-remaining-resource", "x-ms-ratelimit-remaining-subscription-reads",
)  # fmt: skip


@pytest.mark.parametrize("name", TRUSTING)
@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: value[:9])
async def test_what_headers_say_is_understood_in_no_time_or_left_out(
    cloud: Cloud, name: str, value: str
) -> None:
    api = APIS[name](cloud.url, str(cloud.ca_file))
    headers = [f"{header}: {value}" for header in HEADERS]
    began = time.process_time()
    for status in (200, 429):
        with suppress(CloudError):
            await cloud.ask(api, answer(status, SUCCESS, *headers))
    assert time.process_time() - began < CPU_SECONDS
    await api.close()


BODIES = (
    b"[]", b"1", b'"text"', b"null", b"{}", b'{"error": 1, "value": 2}', b"[" * 1000 + b"]" * 1000,
    b'{"type": [], "type": {}, "links": {"pages": 7}, "status": {"a": 1}}', b"\xff", b"1" * 9999,
    b'{"error": ' + b'{"error": ' * 900 + b"1" + b"}" * 901,
)  # fmt: skip


@pytest.mark.parametrize("name", TRUSTING)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:9])
async def test_what_is_no_answer_of_the_clouds_is_its_error(
    cloud: Cloud, name: str, body: bytes
) -> None:
    api = APIS[name](cloud.url, str(cloud.ca_file))
    for status in (200, 202, 400, 404, 500):
        with suppress(CloudError):
            await cloud.ask(api, answer(status, body))
    await api.close()


@every_api
def test_an_error_of_megabytes_is_a_line_that_can_be_printed(
    make: Callable[[str, str], JsonApi],
) -> None:
    error = {"message": HUGE, "error": HUGE, "type": "error"}
    api = make("https://localhost", "")
    for body in (error, {"error": error}, {"fault": error}, HUGE):
        response = HttpResponse(500, HUGE, {}, orjson.dumps(body))
        with pytest.raises(CloudError) as raised:
            api.read("GetThing", response)
        assert len(str(raised.value)) <= 500
        assert str(raised.value).isprintable()


@every_api
@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, Denied), (429, Throttled), (400, Refused), (407, CloudError), (503, CloudError)],
)
def test_a_status_says_what_is_to_be_done(
    make: Callable[[str, str], JsonApi], status: int, kind: type[CloudError]
) -> None:
    with pytest.raises(CloudError) as raised:
        make("https://localhost", "").read("GetThing", HttpResponse(status, "no", {}, b"{}"))
    assert isinstance(raised.value, kind)
    assert isinstance(raised.value, Refused) == (kind is Refused)


@every_api
@pytest.mark.parametrize("status", [413, 414, 431])
def test_a_request_that_is_too_large_is_refused_and_slows_no_one(
    make: Callable[[str, str], JsonApi], status: int
) -> None:
    """A tenant's Service may have thousands of ports; who is throttled lets all others wait."""
    with pytest.raises(Refused):
        make("https://localhost", "").read("GetThing", HttpResponse(status, "no", {}, b"{}"))


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [
        ("RetryableError", "ReferencedResourceNotProvisioned", RetryAfter),
        ("RetryableError", "RetryableErrorDueToAnotherOperation", RetryAfter),
        ("AnotherOperationInProgress", "", RetryAfter),
        ("RetryableError", "RetryableErrorDueToTooManyCalls", Throttled),
        ("TooManyRequests", "", Throttled),
    ],
)
def test_azures_work_on_one_resource_slows_down_no_others(
    code: str, detail: str, kind: type[CloudError]
) -> None:
    """Azure answers 429 to both; two Services with one address have it at work for each other."""
    body = {"error": {"code": code, "message": "later", "details": [{"code": detail}]}}
    response = HttpResponse(429, "no", {b"retry-after": b"14"}, orjson.dumps(body))
    with pytest.raises(kind) as raised:
        azure("https://localhost", "").read("PutLoadBalancer", response)
    assert getattr(raised.value, "seconds", None) == 14.0


@every_api
def test_a_page_of_what_stands_before_a_cloud_proves_nothing(
    make: Callable[[str, str], JsonApi],
) -> None:
    with pytest.raises(CloudError) as raised:
        make("https://localhost", "").read("GetThing", HttpResponse(404, "no", {}, b"<html>"))
    assert not isinstance(raised.value, NotFound)


def gce() -> GceApi:
    return GceApi(GceSection(project_id="p", local_zone="z-a"), KitGate(10.0), "test")


LONG = "x" * 20_000
NEXT_PAGES: tuple[Any, ...] = (5, True, ["x"], {"href": "x"}, LONG)
BALANCERS = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers"
AZURE_LONG = f"https://management.azure.com/?{'a=1&' * 5_000}"
AZURE_PAGES = "/next", "https://management.azure.com/next/2", AZURE_LONG, *NEXT_PAGES


@pytest.mark.parametrize(
    ("api", "page", "read"),
    [
        *(
            (azure("", ""), {"value": [], "nextLink": it}, lambda it: it.list("List", BALANCERS))
            for it in AZURE_PAGES
        ),
        *(
            (gce(), {"kind": "k", "nextPageToken": it}, lambda it: it.list("list", "projects/p"))
            for it in NEXT_PAGES
        ),
        *(
            (
                openstack("https://x", ""),
                {"servers": [{"id": "a"}], "servers_links": it},
                lambda it: it.pages("List", "compute", "/servers", "servers"),
            )
            for it in ("next", 5, {"rel": "next"})
        ),
        (
            openstack("https://x", ""),
            {"servers": [{"id": LONG}], "servers_links": [{"rel": "next"}]},
            lambda it: it.pages("List", "compute", "/servers", "servers"),
        ),
    ],
)
async def test_a_next_page_that_is_not_understood_is_not_the_end_of_a_list(
    api: Any, page: object, read: Callable[[Any], Awaitable[object]]
) -> None:
    """A part that is taken for all takes machines out from behind load balancers.

    A link of 60 MB that is taken to pieces keeps a process busy for longer than it may be silent.
    """
    asked = list[Request]()

    async def request(made: Request) -> object:
        asked.append(made)
        return page

    api.request = request
    with pytest.raises(CloudError):
        await read(api)
    assert len(asked) == 1


@pytest.mark.parametrize(
    "end", [{"error": {"errors": []}}, {"error": "no"}, {"httpErrorStatusCode": 400}]
)
async def test_an_operation_of_google_that_failed_without_a_reason_is_no_success(end: Json) -> None:
    """What it was to delete is still there."""
    link = "https://compute.googleapis.com/compute/v1/projects/p/global/operations/o"
    with pytest.raises(CloudError, match=r"addresses\.delete: the operation failed"):
        await gce()._done("addresses.delete", {"selfLink": link, "status": "DONE", **end})


@pytest.mark.parametrize("is_operation", [True, False])
async def test_of_reasons_of_google_without_number_some_are_looked_at(is_operation: bool) -> None:
    """A million took two seconds of one turn."""
    looked_at, api = 0, gce()

    class Reason(dict[str, str]):
        def get(self, *_: object) -> str:
            nonlocal looked_at
            looked_at += 1
            return "A"

    failed: Json = {"error": {"errors": [Reason()] * 10 * MAX_PARTS}}
    if is_operation:
        link = "https://compute.googleapis.com/compute/v1/projects/p/global/operations/o"
        with pytest.raises(CloudError):
            await api._done("x", {"selfLink": link, "status": "DONE", **failed})
    else:
        api.error("x", failed, HttpResponse(400, "", {}))
    assert 0 < looked_at < 10 * MAX_PARTS


@pytest.mark.virtual_time
async def test_an_operation_of_google_is_not_done_by_the_answer_about_another() -> None:
    """A load balancer would be published whose rule was refused."""
    link = "https://compute.googleapis.com/compute/v1/projects/p/global/operations/o"
    api = gce()

    async def request(made: Request) -> Json:
        return {"name": "another", "status": "DONE"}

    cast(Any, api).request = request
    with pytest.raises(CloudError, match=r"globalOperations\.get: the answer is not about o"):
        await api._done("forwardingRules.insert", {"selfLink": link, "status": "RUNNING"})


@pytest.mark.parametrize(
    "path",
    [f"projects/p/{'x' * 9_000_000}/z", "projects/p/zs/z", "projects/p", "projects/p/zones/Z"],
    ids=["megabytes", "another collection", "no scope", "no name of a zone"],
)
async def test_an_operation_of_google_that_is_nowhere_is_not_looked_for(path: str) -> None:
    """A part of its path is in the name of the call, which metrics and heartbeats have."""
    link = f"https://compute.googleapis.com/compute/v1/{path}/operations/o"
    with pytest.raises(CloudError, match=r"addresses\.delete: the answer"):
        await gce()._done("addresses.delete", {"selfLink": link, "status": "RUNNING"})


VALUES = 16_000_000


def answering(body: bytes) -> JsonApi:
    """An API whose every answer has this body."""
    api = APIS["digitalocean"]("https://localhost", "")

    async def send(_: Request) -> HttpResponse:
        return HttpResponse(200, "OK", {}, body)

    cast(Any, api).send = send
    return api


async def test_an_answer_of_more_values_than_memory_has_room_for_is_an_error() -> None:
    """Three bytes of text are a hundred in memory."""
    body = b'{"droplets": [' + b"{}," * (VALUES // 2) + b"{}]}"
    with pytest.raises(CloudError, match="more than 16000000 values"):
        await answering(body).request(Request("GetThing", "read", "GET", "/x"))


async def test_the_pages_of_a_list_take_together_no_more_than_one_answer_may() -> None:
    texts = b"[" + b'"",' * 50_000 + b'""],'
    api, pages = answering(b'{"droplets": [' + texts * (VALUES // 400_000) + b"[]]}"), 0
    numbers = iter(range(1000))
    listed = api.read_pages(
        Request("ListThings", "read", "GET", "/x"), lambda _: {"page": next(numbers)}
    )

    async def read() -> None:
        nonlocal pages
        async for _ in listed:
            pages += 1
            assert pages < 10

    with pytest.raises(CloudError, match="more than 16000000 values"):
        await read()
    assert pages > 6


async def test_texts_in_the_pages_of_a_list_count_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page may have 64 MiB of them, and a list a thousand pages."""
    monkeypatch.setattr(json_api, "MAX_VALUES", 10_000)
    api, pages, numbers = answering(b'{"name": "' + b"x" * 128_000 + b'"}'), 0, iter(range(1000))
    request = Request("ListThings", "read", "GET", "/x")

    async def read() -> None:
        nonlocal pages
        async for _ in api.read_pages(request, lambda _: {"page": next(numbers)}):
            pages += 1

    with pytest.raises(CloudError, match="more than 10000 values"):
        await read()
    assert pages == 5


async def test_a_list_of_more_objects_than_a_turn_has_time_for_is_an_error() -> None:
    """Each is read: eight million take half a minute, in which no heartbeat is sent."""
    body = b'{"droplets": [' + b"{}," * (VALUES // 8) + b"{}]}"
    with pytest.raises(CloudError, match="more than 16000000 values"):
        await answering(body).request(Request("GetThing", "read", "GET", "/x"))


def placed() -> GceApi:
    """The same, which knows its project."""

    async def place() -> Any:
        return SimpleNamespace(project="p")

    api = gce()
    cast(Any, api).place = place
    return api


SERVERS = "/servers"
MACHINES = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines"


@pytest.mark.parametrize(
    ("api", "page", "read"),
    [
        (azure("", ""), {"value": [{}] * 3}, lambda it: it.list("List", MACHINES)),
        (gce(), {"kind": "k", "items": [{}] * 3}, lambda it: it.list("list", "projects/p")),
        (
            placed(),
            {"kind": "k", "items": {f"zones/z-{at}": {"disks": [{}]} for at in "abc"}},
            lambda it: it.aggregated("disks"),
        ),
        (gce(), {"kind": "k", "items": [{}] * 3}, lambda it: it.members("projects/p")),
        (
            openstack("https://x", ""),
            {"servers": [{}] * 3},
            lambda it: it.pages("List", "compute", SERVERS, "servers"),
        ),
        (
            APIS["digitalocean"]("https://x", ""),
            {"load_balancers": [{}] * 3},
            lambda it: it.list("List", "/load_balancers", "load_balancers"),
        ),
        (
            APIS["incus"]("https://x", ""),
            {"type": "sync", "metadata": [{}] * 3},
            lambda it: it.get("List", "/instances"),
        ),
        (proxmox("https://x", ""), {"data": [{}] * 3}, lambda it: it.get("List", "/x")),
        (azure("", ""), {"properties": {"rules": [{}] * 3}}, lambda it: it.get("Get", MACHINES)),
    ],
)
async def test_a_list_of_more_records_than_a_turn_has_time_for_is_an_error_in_each_cloud(
    monkeypatch: pytest.MonkeyPatch,
    api: Any,
    page: object,
    read: Callable[[Any], Awaitable[object]],
) -> None:
    """A million load balancers took ten seconds of one turn for each Service: no heartbeat left."""

    async def attempt(made: Request) -> tuple[object, HttpResponse]:
        response = HttpResponse(200, "OK", {}, orjson.dumps(page))
        return api.read(made.operation, response), response

    api.exchange = attempt
    await read(api)
    for module in (lookup, json_api):
        monkeypatch.setattr(module, "MAX_RECORDS", 2)
    with pytest.raises(CloudError, match="more than 2 records"):
        await read(api)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda: b"[" + b"[]," * 1_600_000 + b"[]]", id="lists"),
        pytest.param(lambda: b"[" + b"[[]]," * 800_000 + b"[]]", id="nested lists"),
        pytest.param(
            lambda: b"{%s}" % b",".join(b'"%x" :1' % at for at in range(1_600_000)), id="keys"
        ),
    ],
)
async def test_an_answer_of_more_lists_or_keys_than_a_turn_has_time_for_is_not_read(
    body: Callable[[], bytes],
) -> None:
    """Fifteen million lists, in 28 MB, take eight seconds, in which no heartbeat is sent."""
    with pytest.raises(CloudError, match="more than 1500000 lists or keys"):
        await answering(body()).request(Request("GetThing", "read", "GET", "/x"))


async def test_a_service_that_is_not_reached_is_looked_for_in_another_catalogue() -> None:
    """It may have moved, and the token is good for half a day."""
    api = cast(OpenStackApi, openstack("https://x", ""))
    tokens, within = cast(Any, api._tokens), list[float]()
    endpoint = {"interface": "public", "region": "r", "url": "http://127.0.0.1:9"}
    catalog = ({"type": "compute", "endpoints": [endpoint]},)
    tokens.current, tokens._renew_at = Token("t", 36_000.0, "p", catalog), math.inf
    tokens.renew_within = within.append
    with pytest.raises(Unsent):
        await api.get("GetServer", "compute", "/servers/a")
    assert within == [60.0]
    await api.close()


class Another:
    """Answers each read with another's record."""

    async def get(self, operation: str, *_: str) -> Json:
        record: Json = {"id": "theirs", "name": "theirs", "zone": "z", "region": {"slug": "r"}}
        return {**record, "volume": record, "subnet": {**record, "cidr": "10.0.0.0/8"}}


ANOTHER: Any = Another()
HERE: Any = SimpleNamespace(regional=lambda *parts: "/".join(parts))


@pytest.mark.parametrize(
    "read",
    [
        lambda: DigitalOceanVolumes(ANOTHER)._place("ours"),
        lambda: GceVolumes(ANOTHER)._place("projects/p/zones/z/disks/ours"),
        lambda: Parts(ANOTHER).get(HERE, ADDRESS, "ours"),
        lambda: Networks(ANOTHER).subnet("ours"),
    ],
    ids=["volume", "disk", "address", "subnet"],
)
async def test_anothers_record_in_the_answer_to_a_read_is_an_error(
    read: Callable[[], Awaitable[Any]],
) -> None:
    """A volume's zone, an address and the network of a load balancer are for good."""
    with pytest.raises(CloudError, match="the answer is not about ours"):
        await read()


async def test_a_certificate_that_is_renewed_for_ever_takes_no_memory(tmp_path: Path) -> None:
    """And a request that is under way goes on with the one that it began with."""
    server, file = RawServer(), tmp_path / "ca"
    file.write_bytes(Authority("first").pem)
    async with server.listening() as port:
        reloading = ReloadingClient(Server(f"http://localhost:{port}", str(file)))
        for number in range(20):
            os.utime(file, ns=(1, number))
            server.responses = [[answer(200, b"{}")]]
            client = reloading.current()
            asked = asyncio.create_task(client.request("GET", "/x", ()))
            await until(lambda number=number: len(server.requests) > number)  # type: ignore[misc]
            os.utime(file, ns=(2, number))
            reloading.current()
            assert (await asked).status == 200
        await until(lambda: server.open <= 1)
        assert len(reloading._clients) <= 2
        await reloading.close()


async def test_a_certificate_that_is_another_each_time_leaves_no_connection() -> None:
    """The certificate of a thumbprint is fetched again, and connections of the one before close."""
    server = RawServer()
    async with server.listening() as port:
        url = f"http://localhost:{port}"
        connections = Connections(VCenter("lab", "localhost", thumbprint="ab" * 20))
        connections._client = ReloadingClient(Server(url))
        server.responses = [[answer(200, b"{}")]]
        await (await connections.current()).request("GET", "/x", ())
        assert server.open == 1
        connections.forget_pin()
        await until(lambda: not server.open)


FROM_KEYSTONE: Json = {
    "token": {
        "expires_at": "2026-01-01T01:00:00Z",
        "issued_at": "2026-01-01T00:00:00Z",
        "catalog": [{"type": "compute"}],
        "project": {"id": "project"},
    }
}


@pytest.mark.parametrize(
    "read",
    [
        lambda word: read_azure_token({"access_token": word, "expires_in": 3600}),
        lambda word: read_token(word, FROM_KEYSTONE),
    ],
    ids=["azure", "openstack"],
)
async def test_a_word_that_a_server_gives_as_a_token_is_redacted_nowhere(
    read: Callable[[str], Any],
) -> None:
    """The keys of heartbeats are words; Google's servers have a test of their own."""

    async def renew() -> Any:
        return read("cloud_outage")

    with pytest.raises(CloudError, match="no token that can be used"):
        await RenewedToken(renew).get()
    assert safe_text("cloud_outage") == "cloud_outage"
