"""A part of the cloud fails for a while: nothing is deleted, and the rest goes on.

`OPENSTACK_OUTAGE` says for how many seconds; what is at stake does not change with time, but
back-offs do.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccm.model.objects import Json
from tests.e2e.conftest import api, cluster
from tests.labs.openstack.lab import Lab
from tests.providers.openstack.whole import AGENT, Whole
from tests.support.deadlines import PATIENCE
from tests.support.environment import NODES
from tests.support.running import long, until

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(3600)]

OUTAGE = float(os.environ.get("OPENSTACK_OUTAGE", "30"))
LIMIT = 10 * PATIENCE  # seconds; the whole cloud runs on this machine
NAMES = ("outage-0", "outage-1")
JOINS = "outage-1"
STRANGERS = 30  # Nodes without a server that come and go meanwhile: each has Nova asked
LOGINS = 4 * 4.0  # a minute: four workers, each after 0, 5, 15 and 35 s


@dataclass(frozen=True, slots=True)
class Outage:
    """What the lab answers instead; whether Nodes go on, and how often a service may be asked."""

    rules: tuple[Json, ...]
    nodes_go_on: bool
    calls_a_minute: dict[str, float]


OCTAVIA_THROTTLES = {"service": "octavia", "status": 429, "retry_after": 10}
TOKENS_END = tuple({"service": name, "status": 401, "count": 1} for name in ("nova", "neutron"))
"""What services answer, minutes later, to the tokens of credentials that were deleted."""
OUTAGES = {
    "401 from all": Outage(({"status": 401},), False, {"octavia": 60.0, "keystone": LOGINS}),
    "429 with Retry-After": Outage((OCTAVIA_THROTTLES,), True, {"octavia": 12.0}),
    "slow Keystone": Outage(
        (
            {"service": "keystone", "delay": 10.0},
            {"service": "nova", "status": 401, "count": 1},
        ),
        True,
        {"octavia": 60.0},
    ),
    "dead Octavia": Outage(
        ({"service": "octavia", "status": 503, "delay": 5.0},), True, {"octavia": 60.0}
    ),
}


@pytest.fixture
def servers(lab: Lab) -> Iterator[None]:
    lab.agent = AGENT
    made = lab.create_servers(NAMES)
    yield
    for one in made:
        lab.delete("nova", f"/servers/{one['id']}")


@pytest.mark.parametrize("name", OUTAGES)
async def test_an_outage_deletes_nothing_and_is_recovered_from(
    whole: Whole, servers: None, name: str
) -> None:
    """OS8, OS95: what was asked for meanwhile is there afterwards, and once."""
    before, outage = whole.resources(), OUTAGES[name]
    await whole.register(NAMES[0], 0)
    await whole.add_service("before")
    with whole.supervisor() as supervisor:
        await until("all is served", lambda: is_served(whole), LIMIT)
        kept, starts = await what_there_is(whole), supervisor.pids()
        seen = len(whole.lab.calls())
        with whole.lab.faults(*outage.rules):
            await whole.register(JOINS, 1)
            await whole.add_service("during")
            for number in range(STRANGERS):
                await whole.register(f"stranger-{number}", 2 + number)
                await asyncio.sleep(OUTAGE / STRANGERS)
            calls = whole.lab.calls()[seen:]
            for number in range(STRANGERS):
                await whole.api.request("DELETE", f"{NODES}/stranger-{number}")
            if outage.nodes_go_on:
                await until("Nodes go on", whole.are_initialized, LIMIT)
            there = await what_there_is(whole)
            assert {key: there[key] for key in kept} == kept
        asked = Counter(call["service"] for call in calls)
        for service, most in outage.calls_a_minute.items():
            assert asked[service] <= most * max(1.0, OUTAGE / 60), service
        await until("all is served", lambda: is_served(whole), LIMIT)
        there = await what_there_is(whole)
        assert {key: there[key] for key in kept} == kept
        assert whole.members() == [set(NAMES)] * 2
        assert sorted(whole.balancers()) == ["before", "during"]
        assert supervisor.pids() == starts, "no worker ended"
        await whole.delete_services()
        await until("all Services are gone", whole.has_no_services, LIMIT)
        await whole.delete_nodes()
        await until("nothing is left", lambda: whole.resources() <= before, LIMIT)


async def is_served(whole: Whole) -> bool:
    return (
        await whole.are_initialized()
        and await whole.have_networks()
        and await whole.have_addresses()
    )


async def what_there_is(whole: Whole) -> dict[str, str]:
    """Nodes with their servers, Services with their addresses, and load balancers by name."""
    nodes = {f"node {k}": v["spec"].get("providerID", "") for k, v in (await whole.nodes()).items()}
    addresses = {f"service {k}": v for k, v in (await whole.addresses()).items()}
    return nodes | addresses | {f"balancer {k}": v["id"] for k, v in whole.balancers().items()}


async def test_credentials_are_exchanged_while_nodes_join(whole: Whole, servers: None) -> None:
    """OS93: the old ones are deleted, no worker ends, and no Node waits for longer than a retry."""
    path, lab = f"/users/{whole.lab.user_id}/application_credentials", whole.lab
    made = [
        lab.call("keystone", "POST", path, {"application_credential": {"name": f"rotated-{n}"}})
        for n in range(2)
    ]
    first, second = (one["application_credential"] for one in made)
    file = Path(whole.where.cloud_config)

    def write(credential: Json) -> None:
        ours = lab.world["application_credentials"]["ccm"]
        text = lab.config.replace(ours["id"], credential["id"])
        file.write_text(text.replace(ours["secret"], credential["secret"]))

    write(first)
    try:
        with whole.supervisor() as supervisor:
            await whole.register(NAMES[0], 0)
            await until("it is initialized", whole.are_initialized, LIMIT)
            starts = supervisor.pids()
            write(second)
            lab.delete("keystone", f"{path}/{first['id']}")
            with lab.faults(*TOKENS_END):
                await whole.register(JOINS, 1)
                await until("it is initialized", whole.are_initialized, LIMIT)
                await until("both have networks", whole.have_networks, LIMIT)
            assert supervisor.pids() == starts, "no worker ended"
            await whole.delete_nodes()
            await until("no route is left", lambda: not whole.routes(), LIMIT)
    finally:
        lab.delete("keystone", f"{path}/{second['id']}")
