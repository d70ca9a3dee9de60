"""The next step for one Service and its balancer: a pure decision, performed elsewhere.

One step at a time, because each changes what there is to see: perform it, then plan again until
`Rest` or `Refuse`. A crash between two steps is safe. The finalizer is there before the balancer
and goes after it, so that what a new process finds in the cluster always leads it to the balancer.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from ccm.model.objects import Json
from ccm.model.service import Feature, Service
from workers.service.concerns import concerns, same_ingress
from workers.service.hosts import Hosts
from workers.service.predicates import is_of_our_class, wants_balancer
from workers.service.refusals import refusal

AUDIT = 1800.0  # seconds after which a balancer is compared with its Service again
REFUSED_AGAIN = 600.0  # seconds after which the cloud is asked again for what it refused


@dataclass(frozen=True, slots=True)
class Rules:
    """What the decision depends on beside the objects."""

    classes: Collection[str]  # values of spec.loadBalancerClass that are ours
    supported_features: Collection[Feature]  # what the cloud can do


@dataclass(frozen=True, slots=True)
class Made:
    """What a balancer was made for when the cloud last agreed.

    `concerns` is None when only its hosts are known to be right. `ingress` is what the status has
    to say, None when that is not ours to write; `stored` is what the API server made of it.
    """

    concerns: Json | None
    hosts: Hosts
    at: float
    ingress: list[Json] | None = None
    stored: list[Json] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the cloud refused to do, and why; `is_for_room` when a quota was used up."""

    concerns: Json
    hosts: Hosts
    at: float
    why: str
    is_for_room: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What this process knows of a Service that may have a balancer; lost with the process."""

    service: Service  # as it was last seen
    made: Made | None = None
    refused: Refusal | None = None
    is_deleted: bool = False  # the balancer was taken away
    is_gone: bool = False  # the API server itself says that the Service does not exist

    def asking_again(self) -> "Memory":
        """The same, with a refusal that is long ago."""
        refused = replace(self.refused, at=float("-inf")) if self.refused else None
        return replace(self, refused=refused)


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the Service from disappearing while it may have a balancer."""

    service: Service


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the Service go: its balancer is gone."""

    service: Service


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace `status.loadBalancer.ingress`."""

    service: Service
    ingress: list[Json]


@dataclass(frozen=True, slots=True)
class Ensure:
    """Have the balancer made or compared; `is_check` when it most likely is as it should be."""

    service: Service
    hosts: Hosts
    is_check: bool


@dataclass(frozen=True, slots=True)
class UpdateHosts:
    """Give the balancer these hosts, and nothing else."""

    service: Service
    hosts: Hosts


@dataclass(frozen=True, slots=True)
class DeleteBalancer:
    """Take away the balancer of `service`; `is_orphan` when that Service is no longer there."""

    service: Service
    is_orphan: bool


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask the API server itself whether the Service has gone."""

    service: Service


@dataclass(frozen=True, slots=True)
class LookForBalancer:
    """Find out whether there is a balancer of ours for a Service that is not ours any more."""

    service: Service


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left that has to be remembered."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell people why the Service does not get what it asks for, and wait for a change."""

    service: Service
    why: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done; the sentence says why."""

    message: str


Write = AddFinalizer | RemoveFinalizer | SetStatus
Doing = Write | Ensure | UpdateHosts | DeleteBalancer | Confirm | LookForBalancer | Forget
Step = Doing | Refuse | Rest


def plan(
    service: Service | None, hosts: Hosts, memory: Memory | None, rules: Rules, now: float
) -> Step:
    """The next step for what is, or was, one Service."""
    if memory and (service is None or service.uid != memory.service.uid):
        return _leave_behind(memory, is_replaced=service is not None)
    if service is None:
        return Rest("it is gone")
    if service.is_being_deleted or not wants_balancer(service, rules.classes):
        return _clean_up(service, memory, rules)
    return _provide(service, hosts, memory or Memory(service), rules, now)


def _leave_behind(memory: Memory, is_replaced: bool) -> Step:
    """The Service disappeared without waiting for us; another one of its name may be there."""
    if memory.is_deleted:
        return Forget()
    if not (is_replaced or memory.is_gone):
        return Confirm(memory.service)
    return DeleteBalancer(memory.service, is_orphan=True)


def _clean_up(service: Service, memory: Memory | None, rules: Rules) -> Step:
    is_ours = is_of_our_class(service, rules.classes)
    if not memory:
        if not service.has_finalizer:
            return Rest("wants no balancer of ours")
        if not is_ours:
            return _other_class(service)
    if not memory or not memory.is_deleted:
        return DeleteBalancer(service, is_orphan=False)
    if service.ingress and is_ours:
        return SetStatus(service, [])
    return RemoveFinalizer(service) if service.has_finalizer else Forget()


def _other_class(service: Service) -> Step:
    """The finalizer may be the other controller's: only a balancer of ours makes it ours."""
    if service.is_being_deleted:
        return LookForBalancer(service)
    return Rest(f"left alone: loadBalancerClass {service.load_balancer_class} is not ours")


def _provide(service: Service, hosts: Hosts, memory: Memory, rules: Rules, now: float) -> Step:
    made, wanted = memory.made, concerns(service)
    is_hosted = made is not None and made.hosts == hosts
    if why := _refused_before(memory, hosts, wanted, now) or refusal(
        service, rules.supported_features
    ):
        # What it has keeps serving as it is, so the hosts behind it stay right.
        is_left_behind = service.has_finalizer and not is_hosted
        return UpdateHosts(service, hosts) if is_left_behind else Refuse(service, why)
    if not service.has_finalizer:
        return AddFinalizer(service)
    if made is None or made.concerns != wanted:
        return Ensure(service, hosts, is_check=made is None and bool(service.ingress))
    if not is_hosted:
        return UpdateHosts(service, hosts)
    if now - made.at >= AUDIT:
        return Ensure(service, hosts, is_check=True)
    if made.ingress is not None and not _says(service, made.ingress, made.stored):
        return SetStatus(service, made.ingress)
    return Rest("has its balancer")


def _refused_before(memory: Memory, hosts: Hosts, wanted: Json, now: float) -> str:
    """What the cloud said no to, if that would still be asked for; else empty."""
    refused = memory.refused
    if refused is None or refused.concerns != wanted or refused.hosts != hosts:
        return ""
    return refused.why if now - refused.at < REFUSED_AGAIN else ""


def _says(service: Service, ingress: list[Json], stored: list[Json] | None) -> bool:
    return same_ingress(ingress, service.ingress) or service.ingress == stored
