"""Security groups that several Services want on the same ports, without a cloud."""

import asyncio
from typing import Any
from urllib.parse import urlencode

import pytest

from ccm.errors import CloudError, RetryAfter
from ccm.model.objects import Json
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.lb import security_groups
from ccm.providers.openstack.lb.security_groups import PORT_FIELDS, Membership, PortGroups

pytestmark = pytest.mark.virtual_time

ADDRESSES = {f"server-{number}": f"10.0.0.{number}" for number in range(3)}
FIELDS = urlencode([("fields", name) for name in PORT_FIELDS])


class FakeNeutron:
    """The ports of servers, and how often each was changed."""

    def __init__(self) -> None:
        self.ports: dict[str, Json] = {
            server: {
                "id": server,
                "device_id": server,
                "fixed_ips": [{"ip_address": address}],
                "security_groups": [],
                "revision_number": 1,
            }
            for server, address in ADDRESSES.items()
        }
        self.changed: list[str] = []
        self.lists: list[str] = []
        self.failures: list[CloudError] = []

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        self.lists.append(target)
        return [one for one in self.ports.values() if one["id"] in target]

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        assert call.body is not None
        if self.failures:
            raise self.failures.pop(0)
        port_id = call.path.rpartition("/")[2]
        self.ports[port_id] |= call.body["port"]
        self.changed.append(port_id)
        return {}


@pytest.fixture
def neutron() -> FakeNeutron:
    return FakeNeutron()


def groups_in(neutron: FakeNeutron) -> PortGroups:
    api: Any = neutron
    return PortGroups(api)


async def test_groups_that_come_one_after_another_are_one_change_a_port(
    neutron: FakeNeutron,
) -> None:
    groups, tasks = groups_in(neutron), []
    for number in range(4):
        membership = Membership(f"group-{number}", ADDRESSES)
        tasks.append(asyncio.create_task(groups.apply(membership)))
        await asyncio.sleep(0.4 * security_groups.GATHER)  # together more than it
    await asyncio.gather(*tasks)
    assert sorted(neutron.changed) == sorted(ADDRESSES)
    there = neutron.ports["server-1"]["security_groups"]
    assert there == [f"group-{number}" for number in range(4)]


async def test_a_port_that_changes_meanwhile_is_read_again_and_no_other(
    neutron: FakeNeutron,
) -> None:
    neutron.failures = [RetryAfter("changed meanwhile", 1.0)]
    await groups_in(neutron).apply(Membership("group", ADDRESSES))
    assert sorted(neutron.changed) == sorted(ADDRESSES)
    assert neutron.lists[2:] == [f"/ports?id=server-0&{FIELDS}"]


async def test_a_port_that_goes_on_changing_is_tried_later(neutron: FakeNeutron) -> None:
    neutron.failures = [RetryAfter("changed meanwhile", 1.0)] * 9
    with pytest.raises(RetryAfter, match="go on changing"):
        await groups_in(neutron).apply(Membership("group", ADDRESSES))


async def test_a_port_that_cannot_be_changed_keeps_no_other_from_its_group(
    neutron: FakeNeutron,
) -> None:
    neutron.failures = [CloudError("boom")]
    with pytest.raises(CloudError, match="boom"):
        await groups_in(neutron).apply(Membership("group", ADDRESSES))
    assert neutron.changed == ["server-1", "server-2"]
