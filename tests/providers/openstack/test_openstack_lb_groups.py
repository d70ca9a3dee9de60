"""Security groups that several Services want on the same ports, without a cloud."""

import asyncio
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from ccm.errors import CloudError, Denied, RetryAfter
from ccm.model.objects import Json
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.lb import security_groups
from ccm.providers.openstack.lb.security_groups import (
    PORT_FIELDS,
    IngressRule,
    Membership,
    PortGroups,
    SecurityGroups,
)

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
                "security_groups": ["default"],
                "revision_number": 1,
            }
            for server, address in ADDRESSES.items()
        }
        self.changed: list[str] = []
        self.lists: list[str] = []
        self.gets: list[str] = []
        self.failures: list[CloudError] = []
        self.hides_groups = False  # in lists of ports
        self.lacking: dict[int, str] = {}  # by the number of a list, a group that it lacks

    async def get(self, operation: str, service: str, path: str) -> Json:
        self.gets.append(path)
        return {"port": self.ports[path.rpartition("/")[2]]}

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        self.lists.append(target)
        lacked = self.lacking.get(len(self.lists) - 1)
        return [
            one | {"security_groups": self._shown(one["security_groups"], lacked)}
            for one in self.ports.values()
            if one["id"] in target
            or any(f"security_groups={group}&" in target for group in one["security_groups"])
        ]

    def _shown(self, groups: list[str], lacked: str | None) -> list[str]:
        return [] if self.hides_groups else [group for group in groups if group != lacked]

    def groups_of_ports(self) -> set[tuple[str, ...]]:
        return {tuple(one["security_groups"]) for one in self.ports.values()}

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
    assert there == ["default", *(f"group-{number}" for number in range(4))]


async def test_a_port_that_changes_meanwhile_is_read_again_and_no_other(
    neutron: FakeNeutron,
) -> None:
    neutron.failures = [RetryAfter("changed meanwhile", 1.0)]
    await groups_in(neutron).apply(Membership("group", ADDRESSES))
    assert sorted(neutron.changed) == sorted(ADDRESSES)
    assert neutron.lists[3:] == [f"/ports?id=server-0&{FIELDS}"] * 2


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


@pytest.mark.parametrize("count", [1, 3])
async def test_ports_that_may_not_be_changed_keep_no_service_from_its_load_balancer(
    neutron: FakeNeutron, count: int
) -> None:
    """A kubelet may name a server of others in a network that they share; unless all are so."""
    neutron.failures = [Denied("403")] * count
    applied = groups_in(neutron).apply(Membership("group", ADDRESSES))
    if count == len(ADDRESSES):
        with pytest.raises(Denied, match="403"):
            await applied
    else:
        await applied
    assert neutron.changed == sorted(ADDRESSES)[count:]


async def test_a_port_that_is_listed_without_any_group_keeps_those_that_it_has(
    neutron: FakeNeutron,
) -> None:
    """The ports of all Nodes would have the load balancer's alone, for good."""
    groups, membership = groups_in(neutron), Membership("group", ADDRESSES)
    neutron.hides_groups = True
    with pytest.raises(CloudError, match="lacks its security_groups"):
        await groups.apply(membership)
    assert neutron.groups_of_ports() == {("default",)}
    assert len(neutron.gets) == len(ADDRESSES)
    neutron.hides_groups = False
    await groups.apply(membership)
    assert neutron.groups_of_ports() == {("default", "group")}
    assert len(neutron.gets) == len(ADDRESSES), "one with groups is not asked for"


@pytest.mark.parametrize("answer", range(4))
async def test_a_port_keeps_a_group_that_one_list_lacks(neutron: FakeNeutron, answer: int) -> None:
    """Another's, say, by which its clients come: it was taken off for good."""
    neutron.ports["server-1"]["security_groups"] = ["default", "web"]
    neutron.lacking = {answer: "web"}
    await groups_in(neutron).apply(Membership("group", ADDRESSES))
    assert neutron.groups_of_ports() == {("default", "group"), ("default", "group", "web")}


@pytest.mark.parametrize("answer", range(4))
@pytest.mark.parametrize("field", ["device_id", "fixed_ips", "id"])
async def test_ports_that_one_list_mixes_up_keep_their_groups(
    neutron: FakeNeutron, field: str, answer: int
) -> None:
    """Two Nodes were closed to the load balancer for half an hour."""
    groups = groups_in(neutron)
    await groups.apply(Membership("group", ADDRESSES))
    neutron.changed.clear()
    neutron.lists.clear()
    pages_at = neutron.pages_at

    async def mixed_up(*asked: str) -> list[Json]:
        listed = [dict(port) for port in await pages_at(*asked)]
        if len(neutron.lists) == answer + 1 and len(listed) > 1:
            first, second = listed[:2]
            first[field], second[field] = second[field], first[field]
        return listed

    cast(Any, neutron).pages_at = mixed_up
    await groups.apply(Membership("group", ADDRESSES))
    assert neutron.changed == []


async def test_a_port_that_has_no_group_gets_the_load_balancers(neutron: FakeNeutron) -> None:
    neutron.ports["server-1"]["security_groups"] = []
    await groups_in(neutron).apply(Membership("group", ADDRESSES))
    assert neutron.groups_of_ports() == {("default", "group"), ("group",)}
    assert neutron.gets == ["/ports/server-1"]


class NeutronWithGroups(FakeNeutron):
    """Makes as many groups of a name as it is asked for, and deletes those that no port has."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, Json] = {}
        self.hides_all = False  # in lists of groups

    async def project_id(self) -> str:
        return "project"

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        if key == "ports":
            return await super().pages_at(operation, service, target, key)
        return [] if self.hides_all else [*self.groups.values()]

    async def call(self, operation: str, service: str, method: str, path: str, body: Json) -> Json:
        group_id = f"group-{9 - len(self.groups)}"
        made = {**body["security_group"], "id": group_id, "security_group_rules": []}
        self.groups[group_id] = made
        return {"security_group": made}

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        last = call.path.rpartition("/")[2]
        match call.operation, call.body:
            case "DeleteSecurityGroup", _:
                assert not any(last in groups for groups in self.groups_of_ports())
                del self.groups[last]
            case "CreateSecurityGroupRules", {"security_group_rules": [rule]}:
                rules = self.groups[rule["security_group_id"]]["security_group_rules"]
                rules.append({**rule, "id": rule["remote_ip_prefix"].partition("/")[0]})
            case "DeleteSecurityGroupRule", _:
                for group in self.groups.values():
                    rules = group["security_group_rules"]
                    group["security_group_rules"] = [it for it in rules if it["id"] != last]
            case _:
                return await super().make(call, headers)
        return {}


async def test_a_second_group_of_a_name_goes_with_what_it_allows() -> None:
    """A list that lacked the first had it made; its former rules would stay on all ports."""
    neutron: Any = NeutronWithGroups()
    groups = SecurityGroups(neutron)
    wide, narrow = ([IngressRule("tcp", 30080, at)] for at in ("0.0.0.0/0", "10.9.0.0/16"))
    await groups.ensure("ours", "", wide, ADDRESSES)
    neutron.hides_all = True
    await groups.ensure("ours", "", wide, ADDRESSES)
    assert neutron.groups_of_ports() == {("default", "group-8", "group-9")}
    neutron.hides_all = False
    await groups.ensure("ours", "", narrow, ADDRESSES)
    (left,) = neutron.groups.values()
    assert neutron.groups_of_ports() == {("default", left["id"])}
    assert [rule["remote_ip_prefix"] for rule in left["security_group_rules"]] == ["10.9.0.0/16"]


@pytest.mark.parametrize("method", ["ensure", "delete"])
async def test_groups_that_one_list_mixes_up_have_no_other_one_taken(method: str) -> None:
    """Another's group went, with all that it lets in; or it was on the ports of all Nodes."""
    neutron: Any = NeutronWithGroups()
    for name in ("ours", "theirs"):
        await SecurityGroups(neutron).ensure(name, "", [], ADDRESSES)
    before, groups = neutron.groups_of_ports(), neutron.groups
    ours, theirs = groups.values()
    mixed_up = [{**ours, "id": theirs["id"]}, {**theirs, "id": ours["id"]}]
    neutron.groups = {one["name"]: one for one in mixed_up}
    find = neutron.pages_at

    async def pages_at(operation: str, service: str, target: str, key: str) -> list[Json]:
        listed: list[Json] = await find(operation, service, target, key)
        neutron.groups = groups
        return listed

    neutron.pages_at = pages_at
    rest: Any = {"ensure": ("", [], ADDRESSES), "delete": ()}[method]
    with pytest.raises(CloudError, match="two answers about ours differ"):
        await getattr(SecurityGroups(neutron), method)("ours", *rest)
    assert (neutron.groups_of_ports(), {*neutron.groups}) == (before, {ours["id"], theirs["id"]})
