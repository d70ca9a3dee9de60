"""Do Services get their load balancers: from us, from somebody else, or from nobody."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.api_server import list_services, server_clock
from ccm.checks.cloud import require_provider
from ccm.checks.context import Check, CheckContext
from ccm.checks.finding import Finding, abbreviate, failed, ok, pluralize, warning
from ccm.checks.leases import age_of, current_leader
from ccm.controllers import SERVICE
from ccm.durations import format_duration
from ccm.model.service import Feature, Service
from workers.service.plan import is_of_our_class, wants_balancer, why_unsupported

LOAD_BALANCER_DEADLINE = 300.0  # seconds after which a Service should have its address


@dataclass(frozen=True, slots=True)
class ServiceEvidence:
    """`supported_features` is None when the provider has no load balancers."""

    services: Sequence[Service]
    classes: Sequence[str]
    supported_features: frozenset[Feature] | None
    leader: str
    now: float  # of the API server


async def check_services(context: CheckContext) -> Iterable[Finding]:
    """Which Services will not get an address, and why."""
    if not context.runs(SERVICE):
        return [ok("the service controller is off")]
    part = (await require_provider(context)).load_balancers
    evidence = ServiceEvidence(
        services=[each for each in await list_services(context) if each.type == "LoadBalancer"],
        classes=context.settings.load_balancer_classes,
        supported_features=part.supported_features if part else None,
        leader=await current_leader(context),
        now=(await server_clock(context))(),
    )
    return evaluate_services(evidence)


def evaluate_services(evidence: ServiceEvidence) -> Iterator[Finding]:
    """What keeps Services of type LoadBalancer from theirs; each is named once."""
    ours = [service for service in evidence.services if wants_balancer(service, evidence.classes)]
    if evidence.supported_features is None and ours:
        yield failed(
            f"this provider has no load balancers, and Services ask for them: {_keys(ours)}",
            "let another controller serve them and set --controllers=-service, "
            "or change their type",
        )
        return
    found = [*_refused(evidence, ours), *_of_other_class(evidence), *_late(evidence, ours)]
    yield from found or [ok(f"{pluralize(len(ours), 'Service')} of type LoadBalancer for us")]


def _refused(evidence: ServiceEvidence, ours: Sequence[Service]) -> Iterator[Finding]:
    for service in ours:
        if why := why_unsupported(service, evidence.supported_features or ()):
            yield failed(f"Service {service.key}: {why}", "change the Service as it says")


def _of_other_class(evidence: ServiceEvidence) -> Iterator[Finding]:
    """A class that nobody serves shows nowhere else."""
    alone = [
        service
        for service in evidence.services
        if not is_of_our_class(service, evidence.classes) and _is_late(service, evidence)
    ]
    if alone:
        classes = sorted({service.load_balancer_class or "" for service in alone})
        yield warning(
            f"of a loadBalancerClass that is not ours ({abbreviate(classes)}), "
            f"and without an address for more than {format_duration(LOAD_BALANCER_DEADLINE)}: "
            f"{_keys(alone)}",
            f"run the controller of that class, or make it ours: "
            f"--load-balancer-classes={','.join(classes)}",
        )


def _late(evidence: ServiceEvidence, ours: Sequence[Service]) -> Iterator[Finding]:
    served = [each for each in ours if not why_unsupported(each, evidence.supported_features or ())]
    late = [service for service in served if _is_late(service, evidence)]
    if late and evidence.leader:
        yield failed(
            f"without an address for more than {format_duration(LOAD_BALANCER_DEADLINE)}, "
            f"although {evidence.leader} leads: {_keys(late)}",
            "see the Events of these Services, and 'ccm-supervisor status' where it leads",
        )


def _is_late(service: Service, evidence: ServiceEvidence) -> bool:
    is_waiting = not service.ingress and not service.is_being_deleted
    return is_waiting and age_of(service, evidence.now) > LOAD_BALANCER_DEADLINE


def _keys(services: Sequence[Service]) -> str:
    return abbreviate([service.key for service in services])


CHECK = Check("services", check_services)
