"""The next step for one Service and its balancer: a pure decision, performed elsewhere.

One step at a time, because each changes what there is to see: perform it, then plan again until
`Done` or `Refuse`. A crash between two steps is safe. The finalizer is there before the balancer
and goes after it, so that what a new process finds in the cluster always leads it to the balancer.
A Service that is refused before the cloud is asked gets none, as nothing can be left of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from ccm.errors import Refused
from ccm.model.objects import (
    MAX_VALUE,
    MOST_ENTRIES,
    Json,
    annotation_path,
    expect,
    expect_same,
    replace_seen,
)
from ccm.model.service import (
    FINALIZER,
    UPSTREAM_FINALIZERS,
    Feature,
    Service,
    relevant_spec,
    same_ingress,
    still_held,
)
from ccm.model.writes import Patch
from ccm.settings import Settings
from workers.service.backends import Backends
from workers.service.state import LastApplied, ServiceState
from workers.timings import Timings

MASS_DELETION_SHARE = 0.3  # of the Services with balancers; more at once are not trusted

REMEDIES = {
    Feature.UDP: "use TCP in spec.ports[].protocol",
    Feature.MIXED_PROTOCOLS: "give each protocol a Service of its own",
    Feature.SOURCE_RANGES: (
        "remove spec.loadBalancerSourceRanges and the annotation "
        "service.beta.kubernetes.io/load-balancer-source-ranges, and filter elsewhere"
    ),
    Feature.SESSION_AFFINITY: "set spec.sessionAffinity to None",
    Feature.FIXED_IP: "remove spec.loadBalancerIP",
    Feature.DUAL_STACK: "set spec.ipFamilyPolicy to SingleStack or PreferDualStack",
}


TOO_LARGE = (
    f"it has {MOST_ENTRIES} or more ports, labels or annotations, or more than {MAX_VALUE} bytes:"
    " leave some out"
)


def refuse_nothing(_: Service) -> None:
    """The check of a provider that has none."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the decision depends on beside the objects."""

    classes: Collection[str]  # values of spec.loadBalancerClass that are ours
    features: Collection[Feature]  # what the provider supports
    restricted: Collection[str] = ()  # annotations that are refused
    timings: Timings = Timings()
    check_service: Callable[[Service], None] = refuse_nothing  # raises `Refused`

    @classmethod
    def of(
        cls, settings: Settings, features: Collection[Feature], privileged: Collection[str]
    ) -> "Capabilities":
        """What a provider with these features can do, and the flags let Services ask for."""
        restricted = privileged if settings.restrict_service_annotations else ()
        return cls(settings.load_balancer_classes, features, restricted)


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
    """Replace `status.loadBalancer.ingress`, and set annotations."""

    service: Service
    ingress: list[Json]
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EnsureBalancer:
    """Create or update the balancer; `is_check` when it most likely is as it should be."""

    service: Service
    backends: Backends
    is_check: bool


@dataclass(frozen=True, slots=True)
class UpdateNodes:
    """Give the balancer these backends, and nothing else."""

    service: Service
    backends: Backends


@dataclass(frozen=True, slots=True)
class DeleteBalancer:
    """Delete the balancer of `service`; `is_orphan` when that Service is no longer there."""

    service: Service
    is_orphan: bool


@dataclass(frozen=True, slots=True)
class ConfirmGone:
    """Ask the API server itself whether the Service has gone."""

    service: Service


@dataclass(frozen=True, slots=True)
class FindBalancer:
    """Find out whether there is a balancer of ours for a Service that is not ours any more.

    Its finalizer may be another controller's: only a balancer of ours makes it ours.
    """

    service: Service


@dataclass(frozen=True, slots=True)
class VerifyPublished:
    """Take addresses from the status that the balancer gave up in a change that is not done."""

    service: Service


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left that has to be remembered."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Record why the Service does not get what it asks for, and wait for a change."""

    service: Service
    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is to be done; the sentence says why."""

    message: str


ServiceWrite = AddFinalizer | RemoveFinalizer | SetStatus
CloudCall = EnsureBalancer | UpdateNodes | DeleteBalancer | FindBalancer | VerifyPublished
Action = ServiceWrite | CloudCall | ConfirmGone | Forget
PlannedStep = Action | Refuse | Done


def plan(
    service: Service | None,
    backends: Backends,
    state: ServiceState,
    capabilities: Capabilities,
    now: float,
) -> PlannedStep:
    """The next step for what is, or was, one Service."""
    if state.owner and (service is None or service.uid != state.owner.uid):
        return _clean_up_owner(state.owner, state, is_replaced=service is not None)
    if service is None:
        return Done("not found")
    left = [entry for entry in service.ingress if entry.get("ip") not in state.contested]
    if not service.is_whole:  # nodes serve what is not known here
        left = []
    if is_of_our_class(service, capabilities.classes):
        if left != service.ingress:
            return SetStatus(service, left)
        if state.is_overtaken and service.ingress:  # before what may be refused, or wait for long
            return VerifyPublished(service)
    if service.is_being_deleted or not wants_balancer(service, capabilities.classes):
        return _clean_up(service, state, capabilities)
    return _provide(service, backends, state, capabilities, now)


def is_of_our_class(service: Service, classes: Collection[str]) -> bool:
    """Whether the Service leaves its balancer to us: no class, or one configured as ours."""
    wanted = service.load_balancer_class
    return wanted is None or wanted in classes


def wants_balancer(service: Service, classes: Collection[str] = ()) -> bool:
    """Whether the Service asks us for a balancer, as far as it can be read."""
    is_asked = service.type == "LoadBalancer" and is_of_our_class(service, classes)
    return is_asked and service.is_whole


def left_alone(service: Service) -> str:
    """The message for a Service of another controller's class."""
    return f"left alone: loadBalancerClass {service.load_balancer_class} is not ours"


def why_unsupported(service: Service, capabilities: Capabilities) -> str:
    """Why the Service cannot get its balancer, with what to do; empty when it can."""
    if found := sorted(service.annotations.keys() & set(capabilities.restricted)):
        return (
            f"annotation {found[0]} reaches what is not the Service's own: remove it "
            "(it is restricted by --restrict-service-annotations)"
        )
    try:
        missing = service.features() - set(capabilities.features)
    except Refused as error:
        return str(error)
    return "; ".join(
        f"this cloud's load balancers cannot do {feature}: {REMEDIES[feature]}"
        for feature in Feature
        if feature in missing
    )


def why_refused(service: Service, capabilities: Capabilities) -> str:
    """Why the provider refuses what the Service asks for; empty when only the cloud may know."""
    try:
        capabilities.check_service(service)
    except Refused as error:
        return str(error)
    except Exception:  # noqa: BLE001 - around one callback; `ensure` is to report it
        return ""
    return ""


def mass_deletion_reason(missing: Collection[str], known: Collection[str]) -> str:
    """Why nothing is concluded from these missing Services; empty when they are trusted.

    Those of one namespace are, where others have some as well: its tenant may have done it.
    """
    few, many = ({key.partition("/")[0] for key in keys} for keys in (missing, known))
    is_large = len(missing) > 1 and len(missing) > MASS_DELETION_SHARE * len(known)
    if not is_large or len(few) < 2 <= len(many):
        return ""
    return (
        f"{len(missing)} of {len(known)} Services vanished at once without waiting for their"
        " cleanup; their load balancers are kept: delete them by hand if the Services are really"
        " gone"
    )


def _clean_up_owner(owner: Service, state: ServiceState, is_replaced: bool) -> PlannedStep:
    """The Service disappeared without waiting for us; another one of its name may be there."""
    if state.is_deleted:
        return Forget()
    if not (is_replaced or state.is_owner_gone):
        return ConfirmGone(owner)
    return DeleteBalancer(owner, is_orphan=True)


def _clean_up(service: Service, state: ServiceState, capabilities: Capabilities) -> PlannedStep:
    is_ours = is_of_our_class(service, capabilities.classes)
    if not state.owner:
        if not service.has_finalizer:
            if is_ours and service.type == "LoadBalancer" and not service.is_whole:
                return Refuse(service, TOO_LARGE)
            return Done("needs no load balancer of ours" if is_ours else left_alone(service))
        if not is_ours and service.is_being_deleted:
            return FindBalancer(service)
        if not is_ours:
            return Done(left_alone(service))
    if not state.is_deleted:
        return DeleteBalancer(service, is_orphan=False)
    if service.ingress and is_ours:
        return SetStatus(service, [])
    return RemoveFinalizer(service) if service.has_finalizer else Forget()


def _provide(
    service: Service,
    backends: Backends,
    state: ServiceState,
    capabilities: Capabilities,
    now: float,
) -> PlannedStep:
    if state.is_deleted and service.ingress:
        return SetStatus(service, [])  # before it may be another's
    applied, wanted = state.last_applied, relevant_spec(service, state.own_annotations)
    gave_up_ports = applied is not None and not applied.served <= service.proxied
    is_lacking = applied is None or applied.is_lacking or gave_up_ports
    has_backends = bool(applied and applied.backends == backends and not is_lacking)
    lost = _lost_addresses(service, applied)
    refused_since = now - capabilities.timings.refusal_retry_period
    if why := _refused_before(state, backends, wanted, refused_since) or why_unsupported(
        service, capabilities
    ):
        # What it has keeps serving as it is, so the backends behind it stay right.
        may_have_one = bool(service.has_finalizer or service.ingress or state.owner)
        is_left_behind = may_have_one and not has_backends
        step = UpdateNodes(service, backends) if is_left_behind else Refuse(service, why)
        period = capabilities.timings.balancer_resync_period
        is_old = applied is not None and now - max(applied.at, state.read_at) >= period
        return _give_up_lost(service, state, is_old=is_old) or step
    # What leads elsewhere is changed first: the finalizer may be contested for minutes.
    if not (service.has_finalizer or state.has_lost_node_ports):
        if gave_up_ports:
            return UpdateNodes(service, backends)
        is_new = not (state.owner or service.ingress)
        why = why_refused(service, capabilities) if is_new else ""
        return Refuse(service, why) if why else AddFinalizer(service)
    if applied is None or applied.relevant_spec != wanted:
        is_check = applied is None and bool(service.ingress)
        return lost or EnsureBalancer(service, backends, is_check)
    if state.has_lost_node_ports and applied.ingress is None:
        # Another controller's now, so nothing changes what it had: as where it is refused.
        return DeleteBalancer(service, is_orphan=False)
    status = _outstanding_status(service, applied)
    if status and not applied.is_status_tried:
        return status  # before its backends, which may change for ever
    if lost and applied.stored_ingress is None:  # what the status is to be is refused
        return lost
    if not has_backends:
        return UpdateNodes(service, backends)
    if now - applied.at >= capabilities.timings.balancer_resync_period:
        return EnsureBalancer(service, backends, is_check=True)
    return status or Done("has its load balancer")


def _give_up_lost(service: Service, state: ServiceState, *, is_old: bool) -> PlannedStep | None:
    """What a Service that is refused leads to of others, or may do so, goes first.

    What is known `is_old` where the owner of what it shares may have given its address up.
    """
    is_taken = state.refusal is not None and state.refusal.is_taken and bool(service.ingress)
    if state.has_lost_node_ports or (is_taken and not state.is_deleted):
        return DeleteBalancer(service, is_orphan=False)
    if service.ingress and not state.may_keep_addresses(service):
        return SetStatus(service, [])
    if lost := _lost_addresses(service, state.last_applied):
        return lost
    is_doubted = state.is_unsettled or is_old
    return VerifyPublished(service) if is_doubted and service.ingress else None


def _lost_addresses(service: Service, applied: LastApplied | None) -> SetStatus | None:
    """The write that takes what the load balancer had no more when the cloud last agreed."""
    if applied is None or applied.ingress is None or service.ingress == applied.stored_ingress:
        return None
    held = still_held(service, applied.ingress)
    return None if held == service.ingress else SetStatus(service, held)


def _outstanding_status(service: Service, applied: LastApplied) -> SetStatus | None:
    """The write that the Service's status lacks."""
    ingress, lacks = applied.ingress, dict[str, str]()
    if ingress is None:
        return None
    if not applied.has_annotated:
        lacks = dict(applied.annotations.items() - service.annotations.items())
    is_stored = service.ingress == applied.stored_ingress
    is_right = is_stored or same_ingress(ingress, service.ingress)
    return None if is_right and not lacks else SetStatus(service, ingress, lacks)


def _refused_before(state: ServiceState, backends: Backends, wanted: Json, since: float) -> str:
    """What the cloud has said no to `since` then, if that would still be asked for; else empty."""
    refusal = state.refusal
    if refusal is None or refusal.relevant_spec != wanted or refusal.backends != backends:
        return ""
    return refusal.why if refusal.at > since else ""


def _gives_up_addresses(write: ServiceWrite) -> bool:
    if not isinstance(write, SetStatus):
        return False
    listed, held = (
        {it.get("ip") for it in some} for some in (write.service.ingress, write.ingress)
    )
    return not listed <= {None, *held}


def patch_for(write: ServiceWrite) -> Patch:
    """The write as a JSON patch; it fails with 422 when the Service is not what it was.

    Finalizers are written through the status, too: then no right to change a spec is needed.
    """
    service = write.service
    listed = service.meta.get("finalizers")
    change: Sequence[Json]
    match write:
        case AddFinalizer():
            wanted = [*service.finalizers, FINALIZER]
            change = replace_seen("/metadata/finalizers", listed, wanted)
        case RemoveFinalizer():
            gone = (FINALIZER, *UPSTREAM_FINALIZERS)
            left = [finalizer for finalizer in service.finalizers if finalizer not in gone]
            decided_on = expect("/spec/type", service.spec.get("type"))
            change = decided_on, *replace_seen("/metadata/finalizers", listed, left or None)
        case SetStatus(_, ingress, annotations):
            status = {"ingress": ingress} if ingress else {}
            seen = replace_seen("/status/loadBalancer", service.load_balancer, status)
            decided_on = expect("/spec/loadBalancerClass", service.load_balancer_class)
            change = (decided_on, *seen, *_annotate(service, annotations))
        case _:
            assert_never(write)
    operations = expect_same(service), *change
    path, cannot_wait = f"{service.path}/status", _gives_up_addresses(write)
    return Patch(path, operations, cannot_wait=cannot_wait)


def _annotate(service: Service, annotations: Mapping[str, str]) -> Sequence[Json]:
    """Those of others stay, whatever they are meanwhile."""
    if annotations and not service.annotations:
        return replace_seen("/metadata/annotations", service.meta.get("annotations"), annotations)
    return [
        {"op": "add", "path": annotation_path(name), "value": value}
        for name, value in annotations.items()
    ]
