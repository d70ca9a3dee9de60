"""What this process knows of each Service, and its summary for `status`; lost with the process."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import nsmallest

from ccm.errors import RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, text
from ccm.model.service import Service, Socket, relevant_spec
from ccm.model.status import BalancerStatus
from workers.service.backends import Backends

FINALIZER_RACE = 10.0  # seconds after the write of a finalizer in which a deletion may miss it
ADDRESS_RETRY = 5.0  # seconds until another look at a load balancer without an address
MAX_WARNINGS = 50  # of one load balancer that are kept: a tenant may cause one a letter
MAX_SERVICES_SHOWN = 20
MAX_ADDRESSES_SHOWN = 4  # of one balancer


@dataclass(frozen=True, slots=True)
class LastApplied:
    """What a balancer was made for when the cloud last agreed.

    `relevant_spec` is None when only its backends are known to be right. `ingress` is what the
    status has to say, None when that is not ours to write; `stored_ingress` is what the API server
    made of it; `is_status_tried` once it was sent there, whatever came of it. `is_refused`: no load
    balancer took these backends; `is_lacking`: it took some of them.
    """

    relevant_spec: Json | None
    backends: Backends
    at: float
    ingress: list[Json] | None = None
    stored_ingress: list[Json] | None = None
    is_status_tried: bool = False
    is_refused: bool = False
    is_lacking: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What the provider has others read on the Service; `has_annotated` once they were written."""
    has_annotated: bool = False
    name: str = ""  # of the load balancer, in the cloud
    served: frozenset[Socket] = frozenset()  # what is open of it, as far as is known


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the cloud refused to do, and why; it is asked again some time after `at`."""

    relevant_spec: Json
    backends: Backends
    at: float
    why: str
    is_quota_exceeded: bool = False
    is_taken: bool = False  # by another Service, whose clients its status would bring here


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The cached state of one key. The controller owns it; actions take one and return the next."""

    planned: Service | None = None  # as it was when last planned for
    owner: Service | None = None  # as last seen, if it may have a balancer
    last_applied: LastApplied | None = None
    refusal: Refusal | None = None
    warnings: tuple[str, ...] = ()  # of the load balancer, as the last Event had them
    is_deleted: bool = False  # the owner's balancer was deleted
    is_owner_gone: bool = False  # the API server itself says that the owner does not exist
    finalizer_added_at: float | None = None  # by this process
    missing_since: float | None = None  # the owner, in our cache
    held_since: float | None = None  # since when its first balancer waits for Nodes
    backends_sent: Backends | None = (
        None  # what the balancer was last to get, whether that worked or not
    )
    is_unsettled: bool = True  # its status may have an address that its balancer gave up
    read_at: float = float("-inf")  # whose the addresses of its status are, by itself
    is_overtaken: bool = False  # another has an address of its status now, or may have a port there
    written_at: float | None = None  # its balancer; a list of the cloud may be from before
    is_missed: bool = False  # its balancer was looked for in vain: one answer may lack it
    is_doubted: bool = False  # one answer gives what it has to another, and may be wrong
    has_failed: bool = False  # its last Event reports a failure
    node_ports: frozenset[int] = frozenset()  # to which its balancer may lead
    has_lost_node_ports: bool = False  # and another Service has one of them now
    is_backend_update_due: bool = False  # may update its backends once, debounced or not
    sockets: frozenset[Socket] = frozenset()  # that its balancer served when the cloud last agreed
    admitted: frozenset[Socket] | None = None  # where it shares one: all else may be another's
    contested: Collection[str] = ()  # addresses where another serves a socket that it asks for

    def may_keep_addresses(self, service: Service) -> bool:
        """Whether nodes lead no clients of another to it, while what it asks for is not had."""
        return self.admitted is None or service.sockets <= self.admitted

    def asks_for_more(self, service: Service) -> bool:
        """Whether it may lead to it what another has of what it shares, since last planned."""
        before = self.planned
        is_more = before is not None and bool(service.sockets - before.sockets)
        return not service.is_whole or (is_more and not self.may_keep_addresses(service))

    @property
    def is_unread(self) -> bool:
        """Whether nothing is known of whose its balancer is, and who serves what there."""
        return self.is_unsettled and not self.sockets and self.read_at == float("-inf")

    @property
    def own_annotations(self) -> Mapping[str, str]:
        """What its provider has written to the Service, which asks for nothing."""
        return self.last_applied.annotations if self.last_applied else {}

    @property
    def current_backends(self) -> Backends | None:
        """Those of its balancer, as far as they are known."""
        applied = self.last_applied
        return None if applied is None or applied.is_refused else applied.backends


@dataclass(slots=True)
class StateCell:
    """The state of one key during an action: what is learned stays, also where that fails."""

    state: ServiceState


def observed(
    state: ServiceState, service: Service | None, now: float, *, is_due: bool
) -> ServiceState:
    """What is known of a Service that is planned for; `is_due` where another got its address."""
    if service and state.planned and not state.owner and state.planned.uid != service.uid:
        state = ServiceState()
    if service and service.ingress and state.asks_for_more(service):
        state = replace(state, is_overtaken=True)
    if is_due:
        applied = state.last_applied and replace(state.last_applied, at=float("-inf"))
        state = replace(state, last_applied=applied, is_unsettled=True, is_overtaken=True)
    if service and state.owner and service.uid == state.owner.uid:
        state = replace(state, owner=service, is_owner_gone=False, missing_since=None)
    elif not service and state.owner and state.missing_since is None:
        state = replace(state, missing_since=now)
    return replace(state, planned=service)


def held(state: ServiceState) -> ServiceState:
    """What is known while its first balancer waits for Nodes."""
    return state if state.held_since is not None else replace(state, held_since=time.monotonic())


def ensured(
    state: ServiceState, service: Service, backends: Backends, balancer: Balancer | None
) -> ServiceState:
    """What is known once the cloud agreed; no balancer where another controller makes it.

    Raises as `ingress_of`.
    """
    ingress = ingress_of(balancer) if balancer else None
    made = balancer or Balancer("", ())
    applied = LastApplied(
        relevant_spec(service, made.annotations),
        backends,
        time.monotonic(),
        ingress,
        is_lacking=bool(made.lacking),
        annotations=made.annotations,
        name=made.name,
        served=service.proxied,
    )
    return replace(
        state,
        last_applied=applied,
        node_ports=node_ports_of(service) if balancer else state.node_ports,
        sockets=service.sockets if balancer else frozenset(),
        admitted=service.sockets if made.is_shared else None,
        refusal=None,
        warnings=made.warnings[:MAX_WARNINGS],
        is_unsettled=False,
        has_failed=False,
    )


def shown(state: ServiceState, service: Service, found: Balancer | None) -> ServiceState:
    """What is known once the cloud shows a balancer, where nothing else is: after a restart."""
    if not found or not found.is_shared or state.admitted is not None:
        return state
    free = frozenset[Socket]() if found.is_contested else service.sockets
    return replace(state, admitted=state.sockets | free)


def deleted(state: ServiceState) -> ServiceState:
    """What is known once the cloud has no balancer."""
    is_taken = state.refusal is not None and state.refusal.is_taken
    return replace(
        state,
        last_applied=None,
        node_ports=frozenset(),
        sockets=frozenset(),
        admitted=None,
        refusal=state.refusal if state.has_lost_node_ports or is_taken else None,
        written_at=None,
        is_deleted=True,
    )


def ingress_of(balancer: Balancer) -> list[Json]:
    """`status.loadBalancer.ingress` for its addresses; `ipMode` goes with an IP only.

    Raises `RetryAfter` while it has none: what the status has stays there.
    """
    if not balancer.ingress:
        raise RetryAfter(f"load balancer {balancer.name} has no address yet", ADDRESS_RETRY)
    return [
        {
            **({"ip": entry.ip} if entry.ip else {}),
            **({"hostname": entry.hostname} if entry.hostname else {}),
            **({"ipMode": str(entry.ip_mode)} if entry.ip and entry.ip_mode else {}),
        }
        for entry in balancer.ingress
    ]


class NodePorts:
    """Which Service has each node port, also of checks: one given up may be another's soon."""

    def __init__(self) -> None:
        self._keys: dict[int, str] = {}
        self._ports: dict[str, frozenset[int]] = {}

    def update(self, key: str, service: Service | None) -> frozenset[int]:
        """Take in a Service; those that it has now and had not before."""
        before, after = self._ports.pop(key, frozenset()), node_ports_of(service)
        if service and (check := service.health_check):
            after |= {check.port}
        for port in before - after:
            if self._keys.get(port) == key:
                del self._keys[port]
        if after:
            self._ports[key] = after
        self._keys |= dict.fromkeys(after, key)
        return after - before

    def has_lost(self, key: str, ports: frozenset[int]) -> bool:
        """Whether some of these, which it had, are another's."""
        lost = ports - self._ports.get(key, frozenset())
        return any(self._keys.get(port, key) != key for port in lost)


class PublishedAddresses:
    """Which Services publish each address: one that another gets may not be theirs any more."""

    def __init__(self) -> None:
        self._keys = defaultdict[str, set[str]](set)
        self._addresses: dict[str, Collection[str]] = {}
        self._sockets: dict[str, frozenset[Socket]] = {}

    def update(self, key: str, was: ServiceState, now: ServiceState) -> set[str]:
        """Take in what a Service publishes; the others that publish what it has not before."""
        before, after = _ips(_published(was)), _ips(_published(now))
        self._sockets.pop(key, None)
        for address in self._addresses.pop(key, ()):
            self._keys[address].discard(key)
            if not self._keys[address]:
                del self._keys[address]
        others = (self._keys.get(address, ()) for address in {*after} - {*before})
        found = {other for keys in others for other in keys}
        for address in after:
            self._addresses[key], self._sockets[key] = after, now.sockets
            self._keys[address].add(key)
        return found

    def sharing(self, key: str) -> set[str]:
        """The other Services that publish an address of this one."""
        keys = (self._keys[address] for address in self._addresses.get(key, ()))
        return {other for some in keys for other in some if other != key}

    def contested(self, service: Service, served: frozenset[Socket]) -> list[str]:
        """The addresses in its status where another serves a socket that it has beside `served`.

        Nodes would lead clients of the other to it.
        """
        shared = [
            (address, other)
            for address in _ips(service.ingress)
            for other in self._keys.get(address, ())
            if other != service.key
        ]
        asked = service.sockets - served if shared else frozenset[Socket]()
        return [address for address, other in shared if not asked.isdisjoint(self._sockets[other])]


def node_ports_of(service: Service | None) -> frozenset[int]:
    """Those of its ports, to which its load balancer leads clients: not to that of a check."""
    ports = service.ports if service and service.has_node_ports else []
    listed = [item.get("nodePort") for item in ports]
    return frozenset(port for port in listed if isinstance(port, int) and port)


class Phase(IntEnum):
    """How a Service stands; the lower, the sooner people want to know."""

    REFUSED = 0
    DELETING = 1  # the Service is being deleted, or gone
    PENDING = 2  # the cloud has not agreed in this process's life
    ENSURED = 3


def summarize(states: Mapping[str, ServiceState], now: float) -> list[BalancerStatus]:
    """One entry a Service that has a balancer or is refused one.

    In one phase, what changed last comes first.
    """
    shown = ((key, state) for key, state in states.items() if state.owner or state.refusal)
    first = nsmallest(
        MAX_SERVICES_SHOWN, shown, key=lambda item: (_phase(item[1]), -_answered_at(item[1]))
    )
    return [_entry(key, state, now) for key, state in first]


def _phase(state: ServiceState) -> Phase:
    is_leaving = state.owner is not None and state.owner.is_being_deleted
    if state.refusal:
        return Phase.REFUSED
    if is_leaving or state.is_owner_gone or state.is_deleted:
        return Phase.DELETING
    return Phase.ENSURED if state.last_applied else Phase.PENDING


def _answered_at(state: ServiceState) -> float:
    """When the cloud last answered; negative for a refusal that is to be asked about again."""
    answer = state.refusal or state.last_applied
    return answer.at if answer else 0.0


def _entry(key: str, state: ServiceState, now: float) -> BalancerStatus:
    answered_at = _answered_at(state)
    return {
        "service": key,
        "state": _phase(state).name.lower(),
        "seconds_ago": round(now - answered_at, 1) if answered_at > 0 else None,
        "backends": len(state.current_backends.names) if state.current_backends else 0,
        "addresses": addresses(state),
        "why": state.refusal.why if state.refusal else "",
    }


def explain(service: Service | None, state: ServiceState, desired: Backends, now: float) -> Json:
    """What `explain` shows of one Service; `desired` are the backends that there are now."""
    if not service and not state.last_applied:
        return {"service": "not found"}
    applied, refusal, backends = state.last_applied, state.refusal, state.current_backends
    current = "being deleted" if service and service.is_being_deleted else "present"
    return {
        "service": current if service else "not found",
        "load balancer": f"{applied.name}, compared {now - applied.at:.0f} s ago".lstrip(", ")
        if backends and applied
        else "none known",
        **({"address": ", ".join(addresses(state))} if addresses(state) else {}),
        **({"current backends": _names(backends)} if backends else {}),
        **({"warnings": "; ".join(state.warnings)} if state.warnings else {}),
        **(
            {"refused": f"{now - refusal.at:.0f} s ago: {refusal.why}"}
            if refusal
            else {"desired backends": _names(desired)}
        ),
    }


def _names(backends: Backends) -> str:
    return ", ".join(backends.names) or "none"


def addresses(state: ServiceState) -> list[str]:
    """Its addresses or host names, as many as are shown."""
    entries = _published(state)[:MAX_ADDRESSES_SHOWN]
    found = (text(entry.get("ip")) or text(entry.get("hostname")) for entry in entries)
    return list(filter(None, found))


def _published(state: ServiceState) -> list[Json]:
    """What the cloud said, else what the Service says."""
    ingress = state.last_applied.ingress if state.last_applied else None
    if ingress is None:
        ingress = state.owner.ingress if state.owner else []
    return ingress


def _ips(ingress: Iterable[Json]) -> list[str]:
    """The addresses without host names, which may look like one: nodes serve no others."""
    return list(filter(None, (text(entry.get("ip")) for entry in ingress)))


def has_lost_finalizer(state: ServiceState, now: float) -> bool:
    """Whether the Service went just after we gave it the finalizer.

    An API server that deletes an object does not see a finalizer that is added at this moment.
    """
    missing_since = now if state.missing_since is None else state.missing_since
    added_at = state.finalizer_added_at
    return added_at is not None and missing_since - added_at < FINALIZER_RACE
