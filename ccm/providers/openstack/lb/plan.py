"""What turns a load balancer into what it has to be; nothing in here acts.

Octavia takes one change at a time and is at work on it for a while, so a plan is made again after
each call from what is there then. A crash between two calls is safe for the same reason.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.errors import Refused, TakenByAnother
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.records import differences
from ccm.model.service import Socket
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.lb.names import Names, Role, sharers, tags_of
from ccm.providers.openstack.lb.request import Listener, Member, Monitor, Pool

ROOT = "/lbaas"
DELETION = "DeleteLoadBalancer"
UPDATE_MEMBERS = "UpdateMembers"
EVERYBODY = ({"0.0.0.0/0"}, {"::/0"}, {"0.0.0.0/0", "::/0"})


@dataclass(frozen=True, slots=True)
class ObservedBalancer:
    """A load balancer with its parts, as Octavia's records; members and monitors by pool ID."""

    record: Json
    role: Role
    listeners: Sequence[Json] = ()
    pools: Mapping[str, Json] = field(default_factory=dict)
    members: Mapping[str, frozenset[Member]] = field(default_factory=dict)
    monitors: Mapping[str, Json] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return text(self.record.get("id"))

    @property
    def is_shared(self) -> bool:
        """Whether others may have listeners on it."""
        own = text(self.record.get("name"))
        return self.role is Role.SHARER or bool(sharers(self.record) - {own})

    def pool_of(self, listener: Json) -> Json | None:
        """The pool of a listener, unless it is gone."""
        return self.pools.get(text(listener.get("default_pool_id")))

    def own_listeners(self, names: Names) -> list[Json]:
        """Those that are the Service's."""
        aliases = {text(self.record.get("name"))}
        return [
            listener for listener in self.listeners if names.listens(listener, self.role, aliases)
        ]

    def is_contested(self, names: Names, sockets: Iterable[Socket]) -> bool:
        """Whether a listener of someone else has one of these ports."""
        try:
            check_ports(names, [(protocol, int(port)) for protocol, port in sockets], self)
        except Refused:
            return True
        return False


def plan(
    names: Names, desired: Sequence[Listener], observed: ObservedBalancer
) -> Iterator[ApiCall]:
    """Yield what makes it as desired; raises `Refused` for ports that are others'.

    A listener that is not wanted goes first, because the port may be wanted for another protocol.
    """
    ours = observed.own_listeners(names)
    wanted = {listener.key for listener in desired}
    check_ports(names, [item.key for item in desired], observed)
    for listener in ours:
        if key_of(listener) not in wanted:
            yield from _listener_deletion(listener, observed)
    current = {key_of(listener): listener for listener in ours}
    for item in desired:
        yield from _plan_listener(names, item, current.get(item.key), observed)
    yield from _plan_record(names, observed)


def changed_members(
    pools: Mapping[str, frozenset[Member]], observed: Mapping[str, frozenset[Member]]
) -> Iterator[tuple[str, frozenset[Member]]]:
    """Yield the pools, by ID, that have not these members, by name, address and port."""
    for pool_id, members in sorted(pools.items()):
        if identities(members) != identities(observed.get(pool_id, frozenset())):
            yield pool_id, members


def identities(members: Iterable[Member]) -> set[tuple[str, str, int]]:
    return {(member.name, member.address, member.port) for member in members}


def plan_deletion(names: Names, observed: ObservedBalancer, is_cascade: bool) -> Iterator[ApiCall]:
    """Yield what takes a Service off a load balancer, which goes too unless others need it."""
    may_go = is_deletable(names, observed)
    if not (may_go and is_cascade):
        for listener in observed.own_listeners(names):
            yield from _listener_deletion(listener, observed)
    if may_go:
        path = f"{ROOT}/loadbalancers/{observed.id}{'?cascade=true' if is_cascade else ''}"
        yield ApiCall(DELETION, "load-balancer", "DELETE", path)
        return
    tags, leaving = tags_of(observed.record), {names.balancer, names.owner_tag, names.sharer_tag}
    if observed.role is Role.OWNER:
        leaving.add(text(observed.record.get("name")))
        tags.update(names.cluster_tags)  # by which the last one to leave knows that it may go
    if tags & leaving:
        yield _balancer_update(observed, {"tags": sorted(tags - leaving)})


def is_deletion(call: ApiCall) -> bool:
    """Whether it deletes the load balancer itself."""
    return call.operation == DELETION


def rests_on_tags(call: ApiCall) -> bool:
    """Whether a call writes the tags of a load balancer, or deletes what none says others need."""
    return call.method == "DELETE" or "tags" in mapping(mapping(call.body).get("loadbalancer"))


def is_deletable(names: Names, observed: ObservedBalancer) -> bool:
    """Whether it may go with the Service: nothing else is on it, and this cluster made it."""
    own = {names.balancer}
    if observed.role is Role.OWNER:
        own.add(text(observed.record.get("name")))
    may_go = observed.role is Role.OWNER or names.is_left_behind(observed.record)
    return may_go and not sharers(observed.record) - own


def failover(observed: ObservedBalancer) -> ApiCall:
    """The call by which Octavia makes the machines of a load balancer again."""
    path = f"{ROOT}/loadbalancers/{observed.id}/failover"
    return ApiCall("FailoverLoadBalancer", "load-balancer", "PUT", path)


def creation(names: Names, desired: Sequence[Listener], where: Json, is_whole: bool) -> ApiCall:
    """The one call that makes a load balancer with all its parts, unless it may not be whole."""
    body: Json = {
        "name": names.balancer,
        "description": names.description,
        "tags": names.tags(Role.OWNER),
        **where,
    }
    if is_whole:
        body["listeners"] = [
            {**_listener_body(names, item), "default_pool": _pool_tree(item.pool)}
            for item in desired
        ]
    path = f"{ROOT}/loadbalancers"
    return ApiCall("CreateLoadBalancer", "load-balancer", "POST", path, {"loadbalancer": body})


def key_of(listener: Json) -> tuple[str, int]:
    return text(listener.get("protocol")), int(listener.get("protocol_port", 0))


def check_ports(names: Names, asked: Iterable[tuple[str, int]], observed: ObservedBalancer) -> None:
    """Raise `Refused` for a port that a listener of someone else takes.

    Nodes lead clients of its address to who shares a load balancer: that is `TakenByAnother`.
    """
    kind = TakenByAnother if observed.role is Role.SHARER else Refused
    own = {text(item.get("id")) for item in observed.own_listeners(names)}
    taken = {
        _socket(*key_of(listener))
        for listener in observed.listeners
        if text(listener.get("id")) not in own
    }
    for protocol, number in asked:
        if _socket(protocol, number) in taken:
            name = text(observed.record.get("name"))
            raise kind(f"port {number} of load balancer {name} is used by another listener")


def _socket(protocol: str, port: int) -> tuple[str, int]:
    """What two listeners cannot have at once: all but UDP and SCTP are TCP."""
    return protocol if protocol in ("UDP", "SCTP") else "TCP", port


def _plan_record(names: Names, observed: ObservedBalancer) -> Iterator[ApiCall]:
    """The name follows the cluster's; a mark alone that upstream did not set is not missed."""
    changes: Json = {}
    tags, name = tags_of(observed.record), text(observed.record.get("name"))
    if observed.role is Role.OWNER and name not in (names.balancer, names.legacy_balancer):
        changes["name"] = names.balancer
    missing = {names.sharer_tag} if observed.role is Role.SHARER else set()
    is_legacy = name == names.legacy_balancer
    if changes or missing - tags or (names.balancer not in tags and not is_legacy):
        kept = tags - {name} if changes else tags
        changes["tags"] = sorted({*kept, *names.tags(observed.role)})
    if changes:
        yield _balancer_update(observed, changes)


def _balancer_update(observed: ObservedBalancer, changes: Json) -> ApiCall:
    path = f"{ROOT}/loadbalancers/{observed.id}"
    return ApiCall("UpdateLoadBalancer", "load-balancer", "PUT", path, {"loadbalancer": changes})


def _plan_listener(
    names: Names, desired: Listener, current: Json | None, observed: ObservedBalancer
) -> Iterator[ApiCall]:
    if current is None:
        body = {**_listener_body(names, desired), "loadbalancer_id": observed.id}
        yield _create("Listener", body)
        return
    changes = differing(desired.settings, current)
    if names.balancer not in tags_of(current) and tags_of(current):
        aliases = {text(observed.record.get("name"))}
        changes["tags"] = sorted({*tags_of(current) - aliases, *names.listener_tags})
    if changes:
        yield _update("Listener", current, changes)
    yield from _plan_pool(desired.pool, observed.pool_of(current), current, observed)


def _plan_pool(
    desired: Pool, current: Json | None, listener: Json, observed: ObservedBalancer
) -> Iterator[ApiCall]:
    if current and current.get("protocol") != desired.protocol:
        yield _delete("Pool", current)
        current = None
    if current is None:
        body = {**_pool_body(desired), "listener_id": listener["id"]}
        yield _create("Pool", body)
        return
    if changes := differing(desired.settings, current):
        yield _update("Pool", current, changes)
    pool_id = text(current.get("id"))
    if desired.members != observed.members.get(pool_id, frozenset()):
        yield members_update(pool_id, desired.members)
    yield from _plan_monitor(desired.monitor, observed.monitors.get(pool_id), pool_id)


def _plan_monitor(desired: Monitor | None, current: Json | None, pool_id: str) -> Iterator[ApiCall]:
    if current and (desired is None or current.get("type") != desired.type):
        yield _delete("HealthMonitor", current)
        current = None
    if desired and current is None:
        yield _create("HealthMonitor", {**_monitor_body(desired), "pool_id": pool_id})
    elif desired and current and (changes := differing(desired.settings, current)):
        yield _update("HealthMonitor", current, changes)


def differing(desired: Json, current: Json) -> Json:
    """The fields of `desired` that a record has otherwise."""
    return differences(desired, current, _counts)


def _counts(key: str, value: Any) -> Any:
    """What counts of a value: all that may come is as good as no list."""
    if key == "allowed_cidrs":
        return [] if {*(value or ())} in EVERYBODY else value
    return mapping(value).get("type") if key == "session_persistence" else value


def _listener_deletion(listener: Json, observed: ObservedBalancer) -> Iterator[ApiCall]:
    """The pool goes first: by the listener it is found."""
    if pool := observed.pool_of(listener):
        yield _delete("Pool", pool)
    yield _delete("Listener", listener)


def _listener_body(names: Names, listener: Listener) -> Json:
    settings = {key: value for key, value in listener.settings.items() if value not in (None, {})}
    return {
        "name": listener.name,
        "protocol": listener.protocol,
        "protocol_port": listener.port,
        "tags": names.listener_tags,
        **settings,
    }


def _pool_tree(pool: Pool) -> Json:
    tree = {**_pool_body(pool), "members": members_body(pool.members)}
    if pool.monitor:
        tree["healthmonitor"] = _monitor_body(pool.monitor)
    return tree


def _pool_body(pool: Pool) -> Json:
    settings = {key: value for key, value in pool.settings.items() if value is not None}
    return {"name": pool.name, "protocol": pool.protocol, **settings}


def _monitor_body(monitor: Monitor) -> Json:
    return {"name": monitor.name, "type": monitor.type, **monitor.settings}


def members_body(members: Iterable[Member]) -> list[Json]:
    """The members as Octavia takes them."""
    ordered = sorted(members, key=lambda item: (item.name, item.address))
    return [
        {
            "name": item.name,
            "address": item.address,
            "protocol_port": item.port,
            **({"monitor_port": item.monitor_port} if item.monitor_port else {}),
            **({"subnet_id": item.subnet_id} if item.subnet_id else {}),
        }
        for item in ordered
    ]


def read_members(records: Any) -> frozenset[Member]:
    """The members in records; those that are being deleted no longer count."""
    return frozenset(
        Member(
            text(record.get("name")),
            text(record.get("address")),
            int(record.get("protocol_port", 0)),
            int(record.get("monitor_port") or 0),
        )
        for record in objects(records)
        if record.get("provisioning_status") != "PENDING_DELETE"
    )


def members_update(pool_id: str, members: Iterable[Member]) -> ApiCall:
    """The call that gives a pool exactly these members."""
    path, body = f"{ROOT}/pools/{pool_id}/members", {"members": members_body(members)}
    for item in body["members"]:
        item.setdefault("monitor_port", None)  # else one that was there would stay
    return ApiCall(UPDATE_MEMBERS, "load-balancer", "PUT", path, body)


def _create(kind: str, body: Json) -> ApiCall:
    path = f"{ROOT}/{kind.lower()}s"
    return ApiCall(f"Create{kind}", "load-balancer", "POST", path, {kind.lower(): body})


def _update(kind: str, current: Json, changes: Json) -> ApiCall:
    path = f"{ROOT}/{kind.lower()}s/{current['id']}"
    return ApiCall(f"Update{kind}", "load-balancer", "PUT", path, {kind.lower(): changes})


def _delete(kind: str, current: Json) -> ApiCall:
    path = f"{ROOT}/{kind.lower()}s/{current['id']}"
    return ApiCall(f"Delete{kind}", "load-balancer", "DELETE", path)
