"""Whether Services get their load balancers: asked of us, of somebody else, or of nobody."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, counted, failed, ok, some, warning
from ccm.checks.look.lease import timestamp
from ccm.checks.site import Site
from ccm.controllers import SERVICE
from ccm.durations import format_duration
from ccm.model.objects import text
from ccm.model.service import Feature, Service
from workers.service.predicates import is_of_our_class, wants_balancer
from workers.service.refusals import refusal

LONG = 300.0  # seconds after which a balancer should be there


@dataclass(frozen=True, slots=True)
class Facts:
    """`supported_features` is None when the provider has no load balancers."""

    services: Sequence[Service]
    classes: Sequence[str]
    supported_features: frozenset[Feature] | None
    leader: str
    now: float  # of the API server
    long: float


async def look(site: Site) -> Facts | None:
    """None where Services are not ours to serve."""
    if not site.does(SERVICE):
        return None
    part = (await site.provider()).load_balancers
    return Facts(
        services=[each for each in await site.services() if each.type == "LoadBalancer"],
        classes=site.settings.load_balancer_classes,
        supported_features=part.supported_features if part else None,
        leader=await site.leader(),
        now=await site.server_now(),
        long=LONG,
    )


def judge(facts: Facts | None) -> Iterator[Finding]:
    if facts is None:
        yield ok("the service controller is off")
        return
    ours = [service for service in facts.services if wants_balancer(service, facts.classes)]
    if facts.supported_features is None and ours:
        yield failed(
            f"this provider has no load balancers, and Services ask for them: {_keys(ours)}",
            "let another controller serve them and set --controllers=-service, "
            "or change their type",
        )
        return
    found = [*_refused(facts, ours), *_of_other_class(facts), *_late(facts, ours)]
    yield from found or [ok(f"{counted(len(ours), 'Service')} of type LoadBalancer for us")]


def _refused(facts: Facts, ours: Sequence[Service]) -> Iterator[Finding]:
    for service in ours:
        if why := _refusal(facts, service):
            yield failed(f"Service {service.key}: {why}", "change the Service as it says")


def _refusal(facts: Facts, service: Service) -> str:
    return refusal(service, facts.supported_features or ())


def _of_other_class(facts: Facts) -> Iterator[Finding]:
    """A class that nobody serves shows nowhere else."""
    alone = [
        service
        for service in facts.services
        if not is_of_our_class(service, facts.classes) and _is_late(service, facts)
    ]
    if alone:
        classes = sorted({service.load_balancer_class or "" for service in alone})
        yield warning(
            f"of a loadBalancerClass that is not ours ({some(classes)}), and without an address "
            f"for more than {format_duration(facts.long)}: {_keys(alone)}",
            f"run the controller of that class, or make it ours: "
            f"--load-balancer-classes={','.join(classes)}",
        )


def _late(facts: Facts, ours: Sequence[Service]) -> Iterator[Finding]:
    late = [s for s in ours if _is_late(s, facts) and not _refusal(facts, s)]
    if late and facts.leader:
        yield failed(
            f"without an address for more than {format_duration(facts.long)}, "
            f"although {facts.leader} leads: {_keys(late)}",
            "see the Events of these Services, and 'ccm-supervisor status' where it leads",
        )


def _is_late(service: Service, facts: Facts) -> bool:
    age = facts.now - timestamp(text(service.meta.get("creationTimestamp")))
    return not service.ingress and not service.is_being_deleted and age > facts.long


def _keys(services: Sequence[Service]) -> str:
    return some([service.key for service in services])


CHECK = Check("services", look, judge)
