"""What passes by itself leaves the unit active, in the same process, and everything right."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.e2e.systemd import troubles
from tests.e2e.systemd.machine import UNIT, Machine
from tests.e2e.systemd.site import CREDENTIALS, Site
from tests.support.environment import Environment
from tests.support.fault_proxy import FaultProxy
from tests.support.pki import Authority
from tests.support.running import IS_LONG, long, until

pytestmark = [pytest.mark.real, *([pytest.mark.timeout(600)] if IS_LONG else [])]

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Row:
    """A trouble, how long it lasts, and what the unit and the cluster are before."""

    trouble: Callable[[Site], AbstractAsyncContextManager[None]]
    configure: Callable[[Site], None] = Site.use_token
    seconds: float = 30.0 if IS_LONG else 6.0
    nodes: int = 2
    joining: int = 2  # meanwhile


LEADING = (
    Row(troubles.rights_are_revoked),
    Row(troubles.token_is_not_accepted),
    Row(troubles.one_patch_is_throttled),
    Row(troubles.one_renewal_is_throttled),
    Row(troubles.lease_is_answered_late, seconds=60.0),
    Row(troubles.account_is_replaced, Site.use_token_file),
    Row(troubles.plugin_fails, Site.use_plugin),
    Row(troubles.certificate_expires, lambda site: site.use_certificate(MINUTE)),
    Row(troubles.events_are_kept_back, lambda site: site.use_token("--watch-idle-limit=5s")),
    Row(troubles.lists_expire, nodes=troubles.PAGE + 20, joining=0),
    Row(troubles.versions_go_backwards, joining=0),
)
STARTING = (
    Row(troubles.rights_are_revoked),
    Row(troubles.token_is_not_accepted),
    Row(troubles.plugin_fails, Site.use_plugin),
    Row(troubles.cloud_refuses_credentials, seconds=60.0),
    Row(troubles.lease_is_answered_late),
)


def cases(first: Row, *others: Row) -> Sequence[object]:
    """In CI the first row stands for all."""
    return [
        pytest.param(first, id=first.trouble.__name__),
        *(pytest.param(row, id=row.trouble.__name__, marks=long) for row in others),
    ]


@pytest.fixture
def site(
    installed: Machine, env: Environment, proxy: FaultProxy, authority: Authority
) -> Iterator[Site]:
    """The unit as it is shipped, not running, and a directory of files that it reads itself."""
    installed.adapt()
    installed.run("install", "-d", "-m", "0750", "-g", "ccm-supervisor", CREDENTIALS)
    yield Site(installed, env, proxy, authority, account=f"ccm-{uuid4().hex[:8]}")
    installed.attempt("systemctl", "stop", UNIT)
    installed.attempt("systemctl", "reset-failed", UNIT)
    installed.run("rm", "-r", CREDENTIALS)


@pytest.mark.parametrize("row", cases(*LEADING))
async def test_a_unit_that_leads_is_the_same_afterwards(site: Site, row: Row) -> None:
    await asyncio.to_thread(row.configure, site)
    await site.add_nodes(row.nodes)
    await site.env.add_services(1)
    await site.start()
    await site.until_right()
    before = site.state()
    assert before[0] == "active"
    async with row.trouble(site):
        await site.add_nodes(row.joining)
        await asyncio.sleep(row.seconds)  # the trouble, not a wait
    began = time.monotonic()
    await site.env.add_services(2)
    await site.until_right()
    print(f"right after {time.monotonic() - began:.1f} s")
    assert site.state() == before
    assert site.anonymous_requests() == []


@pytest.mark.parametrize("row", cases(*STARTING))
async def test_a_unit_that_starts_waits_and_is_the_same_afterwards(site: Site, row: Row) -> None:
    await asyncio.to_thread(row.configure, site)
    await site.add_nodes(row.nodes)
    await site.env.add_services(1)
    async with row.trouble(site):
        await site.start()
        await until("it has begun", lambda: site.state()[1] != "0")
        before = site.state()
        await asyncio.sleep(row.seconds)  # the trouble, not a wait
    began = time.monotonic()
    await site.until_right()
    print(f"right after {time.monotonic() - began:.1f} s")
    assert site.state() == ("active", *before[1:])
    assert site.anonymous_requests() == []
