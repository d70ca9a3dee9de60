"""The security group that lets a load balancer in to its Nodes, where operators ask for one."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ccm.cloud.json_api import read_list, verify_about
from ccm.cloud.machines import verify_complete
from ccm.cloud.newest import Newest
from ccm.cloud.shared_read import SharedLock
from ccm.errors import (
    CloudError,
    Conflict,
    Denied,
    NotFound,
    Refused,
    RetryAfter,
    Unauthenticated,
)
from ccm.model.objects import Json, mapping, objects, objects_with, text
from ccm.providers.openstack.api import RACE_RETRY, OpenStackApi
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.neutron import if_unchanged, list_own, list_ports, read_port

log = logging.getLogger(__name__)

GATHER = 0.5  # seconds without a change of another Service, which would be to the same ports
MAX_GATHERS = 4
MAX_ROUNDS = 3  # of changes to ports that others change, too
PORT_FIELDS = (
    "id",
    "device_id",
    "fixed_ips",
    "security_groups",
    "port_security_enabled",
    "revision_number",
)


@dataclass(frozen=True, slots=True, order=True)
class IngressRule:
    """Who may come to one port of a Node."""

    protocol: str
    port: int
    cidr: str


@dataclass(frozen=True, slots=True)
class Membership:
    """On whose ports a group has to be: addresses by the ID of their server, and no others."""

    group_id: str
    addresses: Mapping[str, str]

    def includes(self, port: Json) -> bool:
        """Whether the group has to be on this port; one without port security can have none."""
        at = {text(record.get("ip_address")) for record in objects(port.get("fixed_ips"))}
        address = self.addresses.get(text(port.get("device_id")), "")
        return address in at and bool(port.get("port_security_enabled", True))


def plan_rules(desired: Collection[IngressRule], group: Json) -> Iterator[ApiCall]:
    """Yield what gives a group these rules; it keeps those for what its members send, and leaves
    out those of another, which a list may have at this one.
    """
    current = {
        _read_rule(rule): text(rule.get("id"))
        for rule in objects(group.get("security_group_rules"))
        if rule.get("direction") == "ingress"
        and rule.get("security_group_id") in (None, group.get("id"))
    }
    if missing := sorted(set(desired) - current.keys()):
        body = [_rule_body(text(group.get("id")), rule) for rule in missing]
        path = "/security-group-rules"
        yield ApiCall(
            "CreateSecurityGroupRules", "network", "POST", path, {"security_group_rules": body}
        )
    for rule in sorted(current.keys() - set(desired)):
        path = f"/security-group-rules/{current[rule]}"
        yield ApiCall("DeleteSecurityGroupRule", "network", "DELETE", path)


def plan_ports(memberships: Sequence[Membership], ports: Iterable[Json]) -> Iterator[ApiCall]:
    """Yield what puts groups on the ports that they belong on, and takes them off all others.

    Raises at the end where those that a port has were not listed.
    """
    unread = list[str]()
    for port in ports:
        listed = port.get("security_groups")
        if not isinstance(listed, list):
            unread.append(f"ListPorts: port {port.get('id')} lacks security_groups")
            continue
        current = set(map(str, listed))
        groups = {membership.group_id for membership in memberships}
        wanted = (current - groups) | {it.group_id for it in memberships if it.includes(port)}
        if wanted != current:
            body = {"port": {"security_groups": sorted(wanted)}}
            yield ApiCall("UpdatePort", "network", "PUT", f"/ports/{port['id']}", body)
    verify_complete(unread)


class PortGroups:
    """Puts groups on ports. What several Services want of the same ports is one change each."""

    def __init__(self, api: OpenStackApi) -> None:
        self._api = api
        self._waiting: dict[str, Membership] = {}
        self._run: asyncio.Task[None] | None = None
        self._lock = SharedLock()
        self._refused = set[str]()  # ports that could not be changed the last time

    async def apply(self, membership: Membership) -> None:
        """Return once the group is where it belongs; raises when a port could not be changed.

        One that may not be changed is left out beside others: any kubelet may name its server.
        """
        self._waiting[membership.group_id] = membership
        if self._run is None:
            self._run = asyncio.create_task(self._change())
        await asyncio.shield(self._run)

    async def _change(self) -> None:
        for _ in range(MAX_GATHERS):
            known = len(self._waiting)
            await asyncio.sleep(GATHER)
            if len(self._waiting) == known:
                break
        async with self._lock.held():
            self._run, memberships = None, list(self._waiting.values())
            self._waiting = {}
            await self._change_ports(memberships)

    async def _change_ports(self, memberships: Sequence[Membership]) -> None:
        """Where someone changes a port meanwhile, as we do for a route, it is read again."""
        ports, failures = await self._ports(memberships), dict[str, CloudError]()
        members = {
            key for key, it in ports.items() if any(item.includes(it) for item in memberships)
        }
        for _ in range(MAX_ROUNDS):
            calls, changed_meanwhile = await self._agreed(memberships, ports, failures)
            for port_id, call in calls.items():
                try:
                    if not ports[port_id]["security_groups"]:
                        await self._verify_has_none(port_id)
                    await self._api.make(call, if_unchanged(ports[port_id]))
                except NotFound:
                    continue
                except RetryAfter:
                    changed_meanwhile.append(port_id)
                except CloudError as error:
                    failures[port_id] = error
            if not changed_meanwhile:
                break
            ports = _by_id(await list_ports(self._api, "id", changed_meanwhile, PORT_FIELDS))
        else:
            failures[""] = RetryAfter(f"ports go on changing: {changed_meanwhile}", RACE_RETRY)
        self._check(failures, members)

    def _check(self, failures: Mapping[str, CloudError], members: Collection[str]) -> None:
        """Raise the first failure; one of a port that may not be changed where none is open."""
        refused = {key for key, error in failures.items() if _is_refusal(error)}
        for port_id in refused - self._refused:
            log.warning("port not opened", extra={"port": port_id, "why": str(failures[port_id])})
        self._refused = refused
        for port_id, error in failures.items():
            if port_id not in refused or refused >= {*members}:
                raise error

    async def _agreed(
        self,
        memberships: Sequence[Membership],
        ports: Mapping[str, Json],
        failures: dict[str, CloudError],
    ) -> tuple[dict[str, ApiCall], list[str]]:
        """The changes by port, and the ports of which a second list gives others: one list may lack
        groups, or mix up ports, and a change would take groups away.
        """
        calls = _calls(memberships, ports, failures)
        again = _by_id(await list_ports(self._api, "id", calls, PORT_FIELDS))
        agreed = _calls(memberships, again, {})
        odd = [port for port in calls if agreed.get(port) != calls[port]]
        return {port: call for port, call in calls.items() if port not in odd}, odd

    async def _verify_has_none(self, port_id: str) -> None:
        """Raise `CloudError` where a list lacks a port's groups: a write would take them away."""
        if read_list("GetPort", await read_port(self._api, port_id), "security_groups"):
            raise CloudError(f"ListPorts: port {port_id} lacks its security_groups")

    async def _ports(self, memberships: Sequence[Membership]) -> dict[str, Json]:
        """Those of the servers, and those that have one of the groups."""
        servers = sorted({server for membership in memberships for server in membership.addresses})
        groups = sorted(membership.group_id for membership in memberships)
        found: dict[str, Json] = {}
        for key, values in (("device_id", servers), ("security_groups", groups)):
            found |= _by_id(await list_ports(self._api, key, values, PORT_FIELDS))
        return found


class SecurityGroups:
    """Keeps one group for each load balancer: its rules, and the ports that have it."""

    def __init__(self, api: OpenStackApi) -> None:
        self._api, self._ports = api, PortGroups(api)
        self._stale: set[str] | None = None
        self._seen = Newest[str, list[str]]()  # IDs by name

    async def ensure(
        self,
        name: str,
        description: str,
        rules: Collection[IngressRule],
        addresses: Mapping[str, str],
    ) -> None:
        """Make the group and put it on these addresses, and on no others.

        Neutron takes a name twice: a second group, from a list that lacked the first, goes.
        """
        groups = await self._agreed(name)
        group = groups[0] if groups else await self._create(name, description)
        for call in plan_rules(rules, group):
            await self._make(call)
        await self._ports.apply(Membership(text(group.get("id")), addresses))
        await self._delete(groups[1:])

    async def delete(self, name: str) -> None:
        """Take the group off all ports, and away."""
        await self._delete(await self._agreed(name))

    async def _delete(self, groups: Iterable[Json]) -> None:
        for group in groups:
            group_id = text(group.get("id"))
            await self._ports.apply(Membership(group_id, {}))
            path = f"/security-groups/{group_id}"
            await self._make(ApiCall("DeleteSecurityGroup", "network", "DELETE", path))

    async def delete_stale(self, name: str) -> None:
        """The same for a group from before groups were switched off; a list has them all."""
        if self._stale is None:
            listed = await list_own(self._api, "security-groups", fields=["name"])
            self._stale = {text(item.get("name")) for item in listed}
        if name in self._stale:
            await self.delete(name)
            self._stale.discard(name)

    async def _agreed(self, name: str) -> list[Json]:
        """As `_find`; two lists have to have what is new: one may mix up groups, and another's
        would be on all ports, or gone.
        """
        found = await self._find(name)
        if found and _ids(found) != self._seen.get(name):
            if _ids(await self._find(name)) != _ids(found):
                raise CloudError(f"ListSecurityGroups: two answers about {name} differ")
            self._seen[name] = _ids(found)
        return found

    async def _find(self, name: str) -> list[Json]:
        """Those of this name, whatever else the answer has: by it they are changed and deleted."""
        found = await list_own(self._api, "security-groups", [("name", name)])
        return sorted(objects_with(found, "name", name), key=lambda item: text(item.get("id")))

    async def _create(self, name: str, description: str) -> Json:
        body = {"security_group": {"name": name, "description": description}}
        answer = await self._api.call(
            "CreateSecurityGroup", "network", "POST", "/security-groups", body
        )
        found = dict(mapping(answer.get("security_group")))
        verify_about("CreateSecurityGroup", found, "name", name)
        return found

    async def _make(self, call: ApiCall) -> None:
        """Make the call; what is gone or there already is planned again."""
        try:
            await self._api.make(call)
        except NotFound:
            if call.method != "DELETE":
                raise
        except Conflict as error:
            raise RetryAfter(str(error), RACE_RETRY) from error


def rules_for(
    ports: Iterable[tuple[str, int]], cidrs: Iterable[str], check: tuple[int, Iterable[str]]
) -> set[IngressRule]:
    """The rules for node ports by protocol, and for the port of the health check unless it is 0."""
    found = defaultdict[tuple[str, int], set[str]](set)
    for protocol, number in ports:
        found[protocol.lower(), number] |= set(cidrs)
    if check[0]:
        found["tcp", check[0]] |= set(check[1])
    return {IngressRule(*key, cidr) for key, some in found.items() for cidr in some}


def _is_refusal(error: CloudError) -> bool:
    return isinstance(error, Denied | Refused) and not isinstance(error, Unauthenticated)


def _ids(groups: Iterable[Json]) -> list[str]:
    return [text(group.get("id")) for group in groups]


def _by_id(ports: Iterable[Json]) -> dict[str, Json]:
    return {text(port.get("id")): port for port in ports}


def _calls(
    memberships: Sequence[Membership], ports: Mapping[str, Json], failures: dict[str, CloudError]
) -> dict[str, ApiCall]:
    """The changes by port; what is not known of others is a failure."""
    calls = dict[str, ApiCall]()
    try:
        for call in plan_ports(memberships, ports.values()):
            calls[call.path.rpartition("/")[2]] = call
    except CloudError as error:
        failures[""] = error
    return calls


def _read_rule(rule: Json) -> IngressRule:
    """A rule that is for a range of ports, or for all, is not one that we make."""
    first, last = rule.get("port_range_min"), rule.get("port_range_max")
    number = first if isinstance(first, int) and first == last else 0
    protocol = text(rule.get("protocol")).lower()
    return IngressRule(protocol, number, text(rule.get("remote_ip_prefix")))


def _rule_body(group_id: str, rule: IngressRule) -> Json:
    return {
        "security_group_id": group_id,
        "direction": "ingress",
        "ethertype": "IPv6" if ":" in rule.cidr else "IPv4",
        "protocol": rule.protocol,
        "port_range_min": rule.port,
        "port_range_max": rule.port,
        "remote_ip_prefix": rule.cidr,
    }
