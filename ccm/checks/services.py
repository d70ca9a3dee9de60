"""Whether Services get load balancers: from us, from another controller, or not at all."""

from collections.abc import Iterable, Iterator, Sequence

from ccm.checks.api_server import list_services, server_clock
from ccm.checks.cloud import require_provider
from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding, abbreviate, failed, ok, pluralize, warning
from ccm.checks.leaders import age_of, current_leader
from ccm.controllers import SERVICE
from ccm.durations import format_duration
from ccm.model.service import Service
from workers.service.plan import (
    Capabilities,
    is_of_our_class,
    wants_balancer,
    why_unsupported,
)

LOAD_BALANCER_DEADLINE = 300.0  # seconds after which a Service should have its address


async def check_services(context: CheckContext) -> Iterable[Finding]:
    """Which Services will not get an address, and why."""
    if not context.runs(SERVICE):
        return [ok("the service controller is off")]
    part = (await require_provider(context)).load_balancers
    services = [each for each in await list_services(context) if each.type == "LoadBalancer"]
    classes, now = context.settings.load_balancer_classes, (await server_clock(context))()
    capabilities = None
    if part:
        features, privileged = part.supported_features, part.privileged_annotations
        capabilities = Capabilities.of(context.settings, features, privileged)
    return evaluate_services(services, classes, capabilities, await current_leader(context), now)


def evaluate_services(
    services: Sequence[Service],
    classes: Sequence[str],
    capabilities: Capabilities | None,
    leader: str,
    now: float,
) -> Iterator[Finding]:
    """What keeps Services of type LoadBalancer from theirs; each is named once.

    `capabilities` is None when the provider has no load balancers; `now` is the API server's
    wall clock.
    """
    ours = [service for service in services if wants_balancer(service, classes)]
    if capabilities is None and ours:
        yield failed(
            f"this provider has no load balancers, and Services ask for them: {_keys(ours)}",
            "let another controller serve them and set --controllers=*,-service, "
            "or change their type",
        )
        return
    refused = {
        each.key: why
        for each in ours
        if capabilities and (why := why_unsupported(each, capabilities))
    }
    late = [service for service in ours if _is_late(service, now) and service.key not in refused]
    others = [
        each for each in services if not is_of_our_class(each, classes) and _is_late(each, now)
    ]
    found = [
        failed(f"Service {key}: {why}", "change the Service as the message suggests")
        for key, why in refused.items()
    ]
    found += [_of_other_class(others)] if others else []
    found += [_late(late, leader)] if late and leader else []
    yield from found or [ok(f"{pluralize(len(ours), 'Service')} of type LoadBalancer for us")]


def _late(services: Sequence[Service], leader: str) -> Finding:
    return failed(
        f"without an address for more than {format_duration(LOAD_BALANCER_DEADLINE)}, "
        f"although {leader} leads: {_keys(services)}",
        "see the Events of these Services, and 'ccm-supervisor status' where it leads",
    )


def _of_other_class(services: Sequence[Service]) -> Finding:
    """A class without a controller shows nowhere else."""
    classes = sorted({service.load_balancer_class or "" for service in services})
    return warning(
        f"of a loadBalancerClass that is not ours ({abbreviate(classes)}), "
        f"and without an address for more than {format_duration(LOAD_BALANCER_DEADLINE)}: "
        f"{_keys(services)}",
        f"run the controller of that class, or make it ours: "
        f"--load-balancer-classes={','.join(classes)}",
    )


def _is_late(service: Service, now: float) -> bool:
    is_waiting = not service.ingress and not service.is_being_deleted
    return is_waiting and age_of(service, now) > LOAD_BALANCER_DEADLINE


def _keys(services: Sequence[Service]) -> str:
    return abbreviate([service.key for service in services])
