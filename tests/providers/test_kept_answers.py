"""What a cloud answers once about itself is not for good: one answer may be wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm.cloud.shared_read import KEPT, KEPT_RETRY
from ccm.cloud.testkit.gate import KitGate
from ccm.errors import Throttled
from ccm.model.objects import Json
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.addresses import PublicAddresses
from ccm.providers.gce.api import GceApi
from ccm.providers.gce.config import GlobalSection
from ccm.providers.incus.config import BalancerSection, NodeSection, RouteSection
from ccm.providers.incus.inventory import Inventory, Nic
from ccm.providers.incus.lb.backends import BackendReader
from ccm.providers.incus.routes import IncusRoutes
from ccm.providers.incus.zones import Zones

WRONG, RIGHT = "wrong-1", "right-1"
Read = Callable[[], Awaitable[object]]


class Cloud:
    """An API whose answers are made of what is `true` when they are read."""

    def __init__(self, answer: Callable[[str], Json | list[Json] | str]) -> None:
        self.true, self._answer = WRONG, answer
        self.failures = list[Exception]()

    async def get(self, *_: object, **__: object) -> Any:
        if self.failures:
            raise self.failures.pop()
        return self._answer(self.true)

    get_named = get_config = get


def gce() -> tuple[Cloud, Read]:
    section = GlobalSection(local_zone="europe-west1-b", network_name="default")
    cloud, api = Cloud(lambda project: project), GceApi(section, KitGate(10.0), "test")
    cast(Any, api)._metadata = cloud.get
    return cloud, api.place


def azure() -> tuple[Cloud, Read]:
    def answer(zone: str) -> Json:
        mappings = [{"location": "West Europe", "zones": [zone]}]
        kinds = [{"resourceType": "virtualMachines", "zoneMappings": mappings}]
        return {"resourceTypes": kinds}

    cloud, config = Cloud(answer), AzureConfig(location="westeurope")
    return cloud, PublicAddresses(cast(Any, cloud), config, "kit").zones


def incus_server() -> tuple[Cloud, Read]:
    cloud = Cloud(lambda name: {"environment": {"server_name": name}})
    zones = Zones(cast(Any, cloud), NodeSection())
    return cloud, lambda: zones.of_location("none")


def incus_members() -> tuple[Cloud, Read]:
    cloud = Cloud(lambda domain: [{"server_name": "server-1", "failure_domain": domain}])
    zones = Zones(cast(Any, cloud), NodeSection())
    return cloud, lambda: zones.of_location("server-1")


def incus_network() -> tuple[Cloud, Read]:
    cloud = Cloud(lambda kind: {"name": "net", "type": kind})
    routes = IncusRoutes(cast(Inventory, None), "net", RouteSection(), "kit")
    instance = cast(Any, SimpleNamespace(api=cloud, project="default"))
    nic = Nic("eth0", "net", "", {"network": "net"})
    return cloud, lambda: routes._kind(instance, nic)


def incus_project() -> tuple[Cloud, Read]:
    cloud = Cloud(lambda owner: {"features.networks": str(owner == RIGHT).lower()})
    reader = BackendReader(cast(Any, cloud), cast(Any, None), BalancerSection(network="net"))

    async def read() -> str:
        return RIGHT if await reader._owner("k8s") == "k8s" else WRONG

    return cloud, read


CLOUDS = {
    "gce": gce,
    "azure": azure,
    "incus-server": incus_server,
    "incus-members": incus_members,
    "incus-network": incus_network,
    "incus-project": incus_project,
}


@pytest.fixture(params=CLOUDS)
def started(request: pytest.FixtureRequest) -> tuple[Cloud, Read]:
    return CLOUDS[request.param]()


@pytest.mark.virtual_time
async def test_what_was_wrong_once_is_read_again(started: tuple[Cloud, Read]) -> None:
    cloud, read = started
    assert WRONG in str(await read())
    cloud.true = RIGHT
    assert WRONG in str(await read())
    await asyncio.sleep(KEPT)
    assert WRONG in str(await read())
    await asyncio.sleep(KEPT_RETRY)
    assert RIGHT in str(await read())


@pytest.mark.virtual_time
async def test_one_answer_that_is_wrong_changes_nothing(started: tuple[Cloud, Read]) -> None:
    """Nor does a read that fails, unless nothing is known yet."""
    cloud, read = started
    cloud.true, cloud.failures = RIGHT, [Throttled("busy")]
    with pytest.raises(Throttled):
        await read()
    assert RIGHT in str(await read())
    for true, failures in ((WRONG, []), (RIGHT, []), (RIGHT, [Throttled("busy")]), (RIGHT, [])):
        await asyncio.sleep(KEPT)
        cloud.true, cloud.failures = true, list(failures)
        assert RIGHT in str(await read())


@pytest.mark.virtual_time
async def test_zones_of_members_that_are_known_count_while_they_cannot_be_read() -> None:
    """Incus: nothing was known of any Node, and each was asked for in vain."""
    calls = list[str]()

    class Members:
        failure = Throttled("busy")

        async def get(self, operation: str, *_: object, **__: object) -> Any:
            calls.append(operation)
            if len(calls) > 1:
                raise self.failure
            return [{"server_name": "server-1", "failure_domain": "rack-1"}]

    zones = Zones(cast(Any, Members()), NodeSection())
    for _ in range(3):
        assert await zones.of_location("server-1") == "rack-1"
        await asyncio.sleep(KEPT)
    assert len(calls) == 3
    for _ in range(3):
        assert await zones.of_location("server-1") == "rack-1"
    assert len(calls) == 4
    with pytest.raises(Throttled):
        await zones.of_location("server-2")
