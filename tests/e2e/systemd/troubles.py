"""What is wrong for a while with an API server, its credentials or the cloud, and then passes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from itertools import cycle

from aiohttp import web

from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.e2e.systemd.site import Site
from tests.support.environment import LEASE, NODES
from tests.support.fault_proxy import Around, Fault, Pass, Stream, failure, pass_on
from tests.support.running import until

HOUR = timedelta(hours=1)
SLOW_ANSWER = 6.0  # seconds
PAGE = 100  # objects of a list in one answer
EXPIRED = failure(410, "Expired")
AN_HOUR = failure(429, "TooManyRequests", **{"Retry-After": "3600"})


@asynccontextmanager
async def rights_are_revoked(site: Site) -> AsyncIterator[None]:
    await asyncio.to_thread(site.revoke)
    yield
    await asyncio.to_thread(site.grant)


@asynccontextmanager
async def token_is_not_accepted(site: Site) -> AsyncIterator[None]:
    site.proxy.inject(Fault(failure(401, "Unauthorized"), is_for_all=True))
    yield
    site.proxy.clear()


@asynccontextmanager
async def cloud_refuses_credentials(site: Site) -> AsyncIterator[None]:
    fault = await site.env.admin.set_fault(CloudFault(CloudFaultKind.DENIED))
    yield
    await site.env.admin.clear_faults(fault.id)


@asynccontextmanager
async def one_patch_is_throttled(site: Site) -> AsyncIterator[None]:
    async with _throttled_once(site, "PATCH", f"{NODES}/"):
        yield


@asynccontextmanager
async def one_renewal_is_throttled(site: Site) -> AsyncIterator[None]:
    async with _throttled_once(site, "PUT", f"/leases/{LEASE}"):
        yield


@asynccontextmanager
async def lease_is_answered_late(site: Site) -> AsyncIterator[None]:
    """Each write of it is performed at once; Nodes that join are initialized all the same."""

    async def around(request: web.Request, onward: Pass) -> web.Response:
        answer = await onward()
        if f"/leases/{LEASE}" in request.path and request.method != "GET":
            await asyncio.sleep(SLOW_ANSWER)  # the fault, not a wait
        return answer

    with _around(site, around):
        yield
        await site.env.nodes.until_initialized(len(site.expected))


@asynccontextmanager
async def account_is_replaced(site: Site) -> AsyncIterator[None]:
    """Its token is refused for good, and after a while its successor's is in the file."""
    await asyncio.to_thread(site.delete_account)
    yield
    site.put("token", await asyncio.to_thread(site.new_token))


@asynccontextmanager
async def plugin_fails(site: Site) -> AsyncIterator[None]:
    """Meanwhile the last token is refused."""
    site.remove("credential")
    await asyncio.to_thread(site.delete_account)
    yield
    await asyncio.to_thread(site.put_credential)


@asynccontextmanager
async def certificate_expires(site: Site) -> AsyncIterator[None]:
    """Its successor is late."""
    await until("it is refused", lambda: not site.is_leading(), timeout=120.0)
    yield
    await asyncio.to_thread(site.put_certificate, HOUR)


@asynccontextmanager
async def events_are_kept_back(site: Site) -> AsyncIterator[None]:
    """By a proxy; Nodes that join are initialized all the same."""
    is_over = False

    async def keep(stream: Stream, line: bytes) -> None:
        while not is_over:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(0.05)
        await stream.write(line)

    site.proxy.inject(Fault(each_line=keep))
    yield
    await site.env.nodes.until_initialized(len(site.expected))
    is_over = True
    site.proxy.clear()


@asynccontextmanager
async def lists_expire(site: Site) -> AsyncIterator[None]:
    """Before their end, and all watches are too old."""

    async def around(request: web.Request, onward: Pass) -> web.Response:
        return EXPIRED() if "continue" in request.query else await onward()

    with _around(site, around):
        async with _nothing_deleted(site):
            yield


@asynccontextmanager
async def versions_go_backwards(site: Site) -> AsyncIterator[None]:
    """Most of several API servers lag behind: they have the Nodes of before, but for one."""
    old = await site.env.api.get(NODES, {"limit": str(PAGE)})
    old["items"] = old["items"][1:]
    await site.add_nodes(1)
    await site.until_right()
    lags = cycle((True, True, False))

    async def around(request: web.Request, onward: Pass) -> web.Response:
        is_list = request.path == NODES and "limit" in request.query
        return web.json_response(old) if is_list and next(lags) else await onward()

    with _around(site, around):
        async with _nothing_deleted(site):
            yield


@contextmanager
def _around(site: Site, around: Around) -> Iterator[None]:
    """Requests other than watches go this way."""
    site.proxy.around = around
    yield
    site.proxy.around = pass_on


@asynccontextmanager
async def _throttled_once(site: Site, method: str, part: str) -> AsyncIterator[None]:
    """The next request of this kind is answered with 429, to be tried again in an hour."""
    met = list[str]()

    async def around(request: web.Request, onward: Pass) -> web.Response:
        if met or request.method != method or part not in request.path:
            return await onward()
        met.append(request.path)
        return AN_HOUR()

    with _around(site, around):
        yield
        await until("a request met it", lambda: met)


@asynccontextmanager
async def _nothing_deleted(site: Site) -> AsyncIterator[None]:
    """All watches are answered with 410; an object that a list lacks does not count as deleted.

    Otherwise routes and backends would change in the cloud.
    """
    await site.env.admin.reset_counters()
    site.proxy.inject(Fault(EXPIRED))
    yield
    met = site.proxy.met[NODES]
    site.proxy.clear()
    counters = await site.env.admin.counters()
    assert met
    assert counters["writes"] == 0, counters["rows"]
