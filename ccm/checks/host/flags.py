"""Flags that are right one by one, and together or here do something else than they seem to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, ok, warning
from ccm.checks.site import Site
from ccm.controllers import LIFECYCLE, NODE, ROUTE, SERVICE, VOLUME, is_enabled
from ccm.durations import format_duration
from ccm.settings import Flag, Origin, Settings, flags
from ccm.settings.given import Given

SHORT_MARGIN = 2.0  # seconds between the end of our permission and that of the Lease

NEEDS = {
    "load_balancer_classes": SERVICE,
    "concurrent_service_syncs": SERVICE,
    "route_reconciliation_period": ROUTE,
    "cluster_cidr": ROUTE,
    "legacy_zone_labels": VOLUME,
    "node_status_update_frequency": NODE,
    "prefer_beta_labels": NODE,
    "node_monitor_period": LIFECYCLE,
    "node_deletion_limit": LIFECYCLE,
    "node_deletion_window": LIFECYCLE,
    "node_vanish_share": LIFECYCLE,
}
"""Flags that say something to one controller only."""


@dataclass(frozen=True, slots=True)
class Facts:
    settings: Settings
    given: Mapping[str, Given]


async def look(site: Site) -> Facts:
    return Facts(site.settings, site.given)


def judge(facts: Facts) -> Iterator[Finding]:
    found = [
        *_without_effect(facts),
        *_without_controller(facts),
        *_of_routes(facts.settings),
        *_of_lease(facts.settings),
        *_of_requests(facts.settings),
    ]
    yield from found or [ok("they fit together")]


def _without_effect(facts: Facts) -> Iterator[Finding]:
    for flag in flags():
        is_default = getattr(facts.settings, flag.field) == flag.default
        if flag.field not in facts.given or is_default:
            continue
        if flag.origin is Origin.NO_EFFECT:
            yield warning(f"{_written(flag, facts)} has no effect: {flag.help}", "leave it out")
        elif flag.deprecated:
            yield warning(f"{_written(flag, facts)} is deprecated", flag.deprecated)


def _without_controller(facts: Facts) -> Iterator[Finding]:
    for flag in flags():
        controller = NEEDS.get(flag.field, "")
        is_off = controller and not is_enabled(controller, facts.settings.controllers)
        if is_off and flag.field in facts.given:
            yield warning(
                f"{_written(flag, facts)} has no effect: --controllers turns {controller} off",
                f"leave it out, or turn {controller} on",
            )


def _written(flag: Flag, facts: Facts) -> str:
    return f"--{flag.name}={flag.kind.show(getattr(facts.settings, flag.field))}"


def _of_routes(settings: Settings) -> Iterator[Finding]:
    is_wanted = is_enabled(ROUTE, settings.controllers) and settings.configure_cloud_routes
    if is_wanted and not settings.cluster_cidr:
        yield warning(
            "routes are left alone: without --cluster-cidr ours cannot be told from others",
            "give --cluster-cidr, or set --configure-cloud-routes=false",
        )


def _of_lease(settings: Settings) -> Iterator[Finding]:
    margin = settings.leader_elect_lease_duration - settings.leader_elect_renew_deadline
    if settings.leader_elect and margin < SHORT_MARGIN:
        yield warning(
            f"the Lease outlasts the leader's permission by {format_duration(margin)} only: "
            "a write under way may be cut off",
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


CHECK = Check("flags", look, judge)
