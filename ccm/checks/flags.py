"""Flags that are valid one by one, and together or here do something else than they seem to."""

from collections.abc import Collection, Iterable, Iterator

from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding, from_fault, ok, warning
from ccm.controllers import (
    DECLARATIONS,
    KNOWN,
    ROUTE,
    enabled_provided,
    is_enabled,
    load_controller,
)
from ccm.durations import format_duration
from ccm.errors import ConfigurationFaults
from ccm.settings import Flag, Origin, Settings, flags
from ccm.settings.leader_migration import read_leader_migration

MIN_LEASE_MARGIN = 2.0  # seconds between the renew deadline and the end of the Lease

CONTROLLER_OF_FLAG = {
    **{field: name for declaration in DECLARATIONS for field, name in declaration.flags.items()},
    "tags": "tagging",
    "resources": "tagging",
}
"""Flags that mean something to one controller only."""


async def check_flags(context: CheckContext) -> Iterable[Finding]:
    """The flags themselves, and the file of one; nothing is probed."""
    try:
        read_leader_migration(context.settings)
    except ConfigurationFaults as faults:
        return map(from_fault, faults.faults)
    return evaluate_flags(context.settings, context.raw_values)


def evaluate_flags(settings: Settings, written: Collection[str]) -> Iterator[Finding]:
    """Flags without effect, deprecated ones, and combinations that surprise.

    `written` are the fields of the flags that someone set.
    """
    chosen = [flag for flag in flags() if flag.field in written]
    found = [
        *_without_effect(settings, chosen),
        *_without_controller(settings, chosen),
        *_of_controllers(settings),
        *_of_provided(settings),
        *_of_routes(settings),
        *_of_lease(settings),
        *_of_requests(settings),
    ]
    yield from found or [ok("they fit together")]


def _without_effect(settings: Settings, chosen: Iterable[Flag]) -> Iterator[Finding]:
    for flag in chosen:
        if getattr(settings, flag.field) == flag.default:
            continue
        if flag.origin is Origin.NO_EFFECT:
            yield warning(f"{_text(flag, settings)} has no effect: {flag.help}", "leave it out")
        elif flag.deprecated:
            yield warning(f"{_text(flag, settings)} is deprecated", flag.deprecated)


def _without_controller(settings: Settings, chosen: Iterable[Flag]) -> Iterator[Finding]:
    for flag in chosen:
        controller = CONTROLLER_OF_FLAG.get(flag.field)
        if controller and not is_enabled(controller, settings.controllers):
            yield warning(
                f"{_text(flag, settings)} has no effect: --controllers turns {controller} off",
                f"leave it out, or turn {controller} on",
            )


def _of_controllers(settings: Settings) -> Iterator[Finding]:
    items = settings.controllers
    if not (enabled_provided(items) or any(is_enabled(item, items) for item in KNOWN)):
        yield warning(
            f"--controllers={','.join(items)} turns no controller on",
            "begin it with *, for all but those that are named with -",
        )


def _of_provided(settings: Settings) -> Iterator[Finding]:
    """What the provider's own controllers refuse."""
    for name in enabled_provided(settings.controllers):
        module = load_controller(name, settings.cloud_provider)
        yield from map(from_fault, module.faults(settings) if hasattr(module, "faults") else ())


def _text(flag: Flag, settings: Settings) -> str:
    return f"--{flag.name}={flag.syntax.format(getattr(settings, flag.field))}"


def _of_routes(settings: Settings) -> Iterator[Finding]:
    is_wanted = is_enabled(ROUTE, settings.controllers) and settings.configure_cloud_routes
    if is_wanted and not settings.cluster_cidr:
        yield warning(
            "routes are left alone: without --cluster-cidr, ours cannot be identified",
            "give --cluster-cidr, or set --configure-cloud-routes=false",
        )


def _of_lease(settings: Settings) -> Iterator[Finding]:
    margin = settings.leader_elect_lease_duration - settings.leader_elect_renew_deadline
    if settings.leader_elect and margin < MIN_LEASE_MARGIN:
        yield warning(
            f"the Lease ends only {format_duration(margin)} after the renew deadline: "
            "a write in flight may be cut off",
            "lengthen --leader-elect-lease-duration, or shorten --leader-elect-renew-deadline",
        )


def _of_requests(settings: Settings) -> Iterator[Finding]:
    if settings.kube_api_burst and not settings.kube_api_qps:
        yield warning(
            "--kube-api-burst has no effect without --kube-api-qps",
            "give both, or none for no limit",
        )
    if settings.concurrent_node_syncs > settings.kube_api_in_flight:
        yield warning(
            f"--concurrent-node-syncs={settings.concurrent_node_syncs} is more than "
            f"--kube-api-in-flight={settings.kube_api_in_flight} lets through",
            "raise --kube-api-in-flight to it",
        )
