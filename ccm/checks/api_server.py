"""Can the API server be reached, is it one we support, and do the clocks agree; reading from it."""

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime

from ccm import __version__
from ccm.checks.context import CheckContext, once
from ccm.checks.finding import Finding, NotChecked, abbreviate, failed, from_fault, ok, warning
from ccm.durations import format_duration
from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.kube.cluster_identity import read_cluster_uid
from ccm.kube.watch import list_once
from ccm.manifests.rbac import subjects
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.model.rbac import PolicyRule
from ccm.model.service import Service
from ccm.supervisor.preflight import address_flag, denied_fault, unreachable_fault

REQUEST_TIMEOUT = 5.0
MAX_IN_FLIGHT = 8
CLOCK_WARNING = 10.0  # seconds beyond which new tokens may count as not yet valid
CLOCK_LIMIT = 240.0  # seconds; clouds accept signatures that are up to five minutes old

OLDEST = (1, 30)
"""Older ones drop `ipMode` from a Service, and may run cloud controllers of their own."""
NEWEST = (1, 37)
"""What the tests run against."""
NOT_LISTED = {403: "this identity may not list", 404: "the API server does not serve"}

VerbsByResource = Mapping[tuple[str, str], frozenset[str]]
"""The verbs that are served, by group and resource."""


# Reading from the API server.


@once
async def open_client(context: CheckContext) -> tuple[Kube, str]:
    """A client as `start` would have it, and the address; raises `ConfigurationFault`."""
    settings = context.settings
    access = await config.load(settings.kubeconfig, settings.master)
    try:
        kube = Kube(access, "ccm-supervisor/check", MAX_IN_FLIGHT)
    except (OSError, ValueError) as error:  # as ssl reports invalid files
        raise ConfigurationFault(
            "--kubeconfig",
            f"its certificates are not usable: {error}",
            "give a CA, and a certificate with its key, all PEM, that this user may read",
        ) from error
    context.resources.push_async_callback(kube.close)
    return kube, access.server.url


@once
async def contact_server(context: CheckContext) -> tuple[Json, float | None]:
    """The version, which any client may ask for, and how many seconds the clock is before ours.

    The date of an answer has whole seconds, so that is right to half a second at best.
    """
    kube, _ = await open_client(context)
    sent = time.time()
    version = await kube.request("GET", "/version", timeout=REQUEST_TIMEOUT)
    return version, _clock_offset(kube.server_date, (sent + time.time()) / 2)


def _clock_offset(date: str, now: float) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now
    except ValueError:
        return None


async def connect(context: CheckContext) -> Kube:
    """A client of an API server that answers; raises `NotChecked`."""
    try:
        await contact_server(context)
    except (ConfigurationFault, KubernetesError, Unreachable) as error:
        reason = "the API server does not answer as it should; see api-server"
        raise NotChecked(reason) from error
    kube, _ = await open_client(context)
    return kube


async def server_clock(context: CheckContext) -> Callable[[], float]:
    """The wall clock of the API server, whose times stand in all objects; raises `NotChecked`."""
    await connect(context)
    _, offset = await contact_server(context)
    return lambda: time.time() + (offset or 0.0)


async def list_objects(context: CheckContext, path: str) -> list[Json]:
    """All objects under `path`; raises `NotChecked` where they may not be listed."""
    kube = await connect(context)
    try:
        return await list_once(kube, path)
    except KubernetesError as error:
        if not (why := NOT_LISTED.get(error.status)):
            raise
        raise NotChecked(f"{why} {path.rpartition('/')[2]}") from error


async def cluster_uid(context: CheckContext) -> str:
    """The UID that marks the cluster's things in the cloud; empty where it cannot be read."""
    try:
        return await read_cluster_uid(await connect(context))
    except (NotChecked, KubernetesError, Unreachable):
        return ""


@once
async def list_nodes(context: CheckContext) -> Sequence[Node]:
    """All Nodes; raises `NotChecked`."""
    return [Node(raw) for raw in await list_objects(context, "/api/v1/nodes")]


@once
async def list_services(context: CheckContext) -> Sequence[Service]:
    """All Services; raises `NotChecked`."""
    return [Service(raw) for raw in await list_objects(context, "/api/v1/services")]


async def exists(kube: Kube, path: str) -> bool | None:
    """Whether there is an object at `path`; None when we may not see it."""
    try:
        await kube.request("GET", path, timeout=REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status in (403, 404):
            return None if error.status == 403 else False
        raise
    return True


# api-server: address, trust, credentials.


async def check_api_server(context: CheckContext) -> Iterable[Finding]:
    """Whether the API server answers, and otherwise what stands in the way."""
    flag, url = address_flag(context.settings), ""
    try:
        _, url = await open_client(context)
        await contact_server(context)
    except ConfigurationFault as fault:
        return [from_fault(fault)]
    except KubernetesError as error:
        return [_refused(flag, url, error)]
    except Unreachable as error:
        return [_unreachable(flag, url, error)]
    return [ok(f"{url} answers")]


def _refused(flag: str, url: str, error: KubernetesError) -> Finding:
    if fault := denied_fault(flag, url, error):
        return from_fault(fault)
    return failed(
        f"{flag}: the API server at {url} answers {error}",
        "see its log, and that of whatever stands before it",
    )


def _unreachable(flag: str, url: str, error: Exception) -> Finding:
    match error.__cause__:
        case ssl.SSLError() as tls:
            return failed(
                f"{flag}: no trusted connection to {url} ({' '.join(str(tls).split())})",
                "give the CA of this API server, and an address that its certificate names",
            )
        case socket.gaierror():
            return failed(
                f"{flag}: the name in {url} cannot be resolved here",
                "correct it, or the DNS of this host; the cluster's own may not be there yet",
            )
    return from_fault(unreachable_fault(flag, url, str(error)))


# api-resources: version, resources and verbs.


async def check_resources(context: CheckContext) -> Iterable[Finding]:
    """Whether the version is one we support, and all that policy rules name is served."""
    kube = await connect(context)
    rules = [rule for each in subjects(context.settings, "") for rule in each.rules]
    groups = sorted({rule.group for rule in rules})
    served = await asyncio.gather(*(_discover(kube, group) for group in groups))
    verbs = {key: value for part in served for key, value in part.items()}
    version, _ = await contact_server(context)
    found = evaluate_resources(rules, verbs)
    return [evaluate_version(text(version.get("gitVersion"))), *found]


async def _discover(kube: Kube, group: str) -> VerbsByResource:
    path = f"/apis/{group}/v1" if group else "/api/v1"
    try:
        listed = await kube.request("GET", path, timeout=REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status == 404:
            return {}
        raise
    return {
        (group, text(resource.get("name"))): frozenset(resource.get("verbs") or ())
        for resource in objects(mapping(listed).get("resources"))
    }


def evaluate_version(version: str) -> Finding:
    """Whether a version, as `/version` has it, is one that we support."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if OLDEST <= number <= NEWEST:
        return ok(f"Kubernetes {version}")
    return warning(
        f"Kubernetes {version or 'of an unknown version'}; "
        f"ccm-supervisor {__version__} supports {supported_versions()}",
        "use versions that fit, or try what you need in a test cluster",
    )


def supported_versions() -> str:
    """The Kubernetes versions that we support."""
    return " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))


def evaluate_resources(rules: Iterable[PolicyRule], served: VerbsByResource) -> Iterator[Finding]:
    """Which resources and verbs the policy rules name and the API server does not serve."""
    missing = set()
    for rule in rules:
        verbs = served.get((rule.group, rule.resource), frozenset())
        if lacking := [verb for verb in rule.verbs if verb not in verbs]:
            group = f".{rule.group}" if rule.group else ""
            missing.add(f"{', '.join(lacking)} of {rule.resource}{group}")
    if missing:
        yield failed(
            f"the API server does not serve: {abbreviate(sorted(missing))}",
            "enable them: see --runtime-config of kube-apiserver",
        )


# clock: leadership does not depend on it; tokens, certificates and signed cloud calls do.


async def check_clock(context: CheckContext) -> Iterable[Finding]:
    """Whether this machine's clock agrees with the API server's."""
    await connect(context)
    _, offset = await contact_server(context)
    if offset is None:
        raise NotChecked("the API server does not report its time")
    return [evaluate_clock(offset)]


def evaluate_clock(offset: float) -> Finding:
    """Whether so many seconds, by which the API server's clock is before ours, do harm."""
    size = format_duration(round(abs(offset)))
    message = f"this clock is {size} {'behind' if offset > 0 else 'ahead of'} the API server's"
    remedy = "let a time service (chrony, systemd-timesyncd) set the clock here and there"
    if abs(offset) > CLOCK_LIMIT:
        return failed(message, remedy)
    if abs(offset) > CLOCK_WARNING:
        return warning(message, remedy)
    return ok("this clock and the API server's agree")
