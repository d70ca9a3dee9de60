"""Whether the provider is there, takes its configuration, and has what the controllers need."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, of_fault, ok, warning
from ccm.checks.look.cloud import Started
from ccm.checks.site import Site
from ccm.cloud.interface import CloudProvider
from ccm.controllers import LIFECYCLE, NODE

TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Facts:
    name: str
    started: Started
    needs_instances: bool
    needs_routes: bool


async def look(site: Site) -> Facts:
    return Facts(
        site.settings.cloud_provider,
        await site.started(),
        needs_instances=site.does(NODE, LIFECYCLE),
        needs_routes=site.makes_routes,
    )


def judge(facts: Facts) -> Iterator[Finding]:
    started = facts.started
    yield from map(of_fault, started.faults)
    if started.bug:
        yield failed(
            f"provider {facts.name} failed: {started.bug}", "report this to the provider's author"
        )
    if started.provider and not started.faults:
        found = [*_of_parts(facts, started.provider)]
        yield from found or [
            ok(f"{facts.name} takes its configuration; {_parts(started.provider)}")
        ]


def _of_parts(facts: Facts, provider: CloudProvider) -> Iterator[Finding]:
    if facts.needs_instances and not provider.instances:
        yield warning(
            f"{facts.name} knows nothing of machines: no node is initialised or removed",
            "choose a provider that does, or set --controllers=*,-cloud-node,-cloud-node-lifecycle",
        )
    if facts.needs_routes and not provider.routes:
        yield warning(
            f"--cluster-cidr asks for routes, and {facts.name} has none: they are left alone",
            "let the pod network do without, and set --configure-cloud-routes=false",
        )


def _parts(provider: CloudProvider) -> str:
    parts: Sequence[str] = ("instances", "load_balancers", "routes", "volumes")
    there = [part.replace("_", " ") for part in parts if getattr(provider, part)]
    return f"it has {', '.join(there) or 'nothing'}"


CHECK = Check("cloud-provider", look, judge, TIMEOUT)
