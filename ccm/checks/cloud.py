"""Does the provider start, and does the cloud answer a cheap read of each part that is used.

That the credentials may write as well shows only when something is written.
"""

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ccm.checks.api_server import cluster_uid, connect, list_nodes, list_objects
from ccm.checks.context import CheckContext, once, or_none
from ccm.checks.finding import Finding, NotChecked, failed, from_fault, ok, warning
from ccm.cloud.dry_run import ReadingGate
from ccm.cloud.gate import WorkerGate, invoke
from ccm.cloud.interface import CloudProvider, ReportsMissingPermissions, Volumes
from ccm.cloud.proof import NO_SUCH_NAME, NO_SUCH_NODE, FreeGrants
from ccm.cloud.registry import load_provider
from ccm.cloud.secrets import with_readers
from ccm.controllers import LIFECYCLE, NODE, SERVICE, VOLUME
from ccm.decide.budget import Priority
from ccm.errors import (
    CloudError,
    ConfigurationFault,
    ConfigurationFaults,
    Denied,
    ImplementedElsewhere,
    KubernetesError,
    NotImplementedByProvider,
    Refused,
    Throttled,
    Unreachable,
)
from ccm.kube.client import Kube
from ccm.model.cloud import Answer
from ccm.model.objects import Node
from ccm.model.service import Service
from ccm.model.volume import PersistentVolume
from workers.main import provider_context, require_cluster_id, require_machine_marks

log = logging.getLogger(__name__)

CALL_TIMEOUT = 8.0  # unless --cloud-call-timeout is shorter

NO_SUCH_SERVICE = Service(
    {
        "metadata": {"name": NO_SUCH_NAME, "namespace": "default", "uid": NO_SUCH_NAME},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}],
        },
    }
)


class CountingGrants(FreeGrants):
    """Counts the calls by class of the budget."""

    def __init__(self, spent: Counter[str]) -> None:
        self._spent = spent

    async def take(self, budget: str, priority: Priority) -> float:
        self._spent[budget] += 1
        return await super().take(budget, priority)


@once
async def start_provider(context: CheckContext) -> CloudProvider:
    """Initialize the provider as a worker does, behind a gate that stops writes.

    Raises `ConfigurationFault` or `ConfigurationFaults`, and `CloudError` for anything else.
    """
    settings, grants = context.settings, CountingGrants(context.cloud_calls)
    timeout = min(settings.cloud_call_timeout, CALL_TIMEOUT)
    gate = ReadingGate(WorkerGate(grants, timeout, lambda: None))
    try:
        given = provider_context(settings, gate, "check", await cluster_uid(context))
        provider = load_provider(settings.cloud_provider)
        if kube := await _kube(context):
            given = with_readers(given, kube, creates=False)
        await provider.initialize(given)
        require_machine_marks(provider, settings)
    except (ConfigurationFault, ConfigurationFaults):
        raise
    except Exception as bug:  # around one callback: someone else's code
        log.debug("provider failed", exc_info=True)
        raise CloudError(f"provider {settings.cloud_provider} failed: {bug!r}") from bug
    context.resources.push_async_callback(_close, provider)
    return provider


async def _kube(context: CheckContext) -> Kube | None:
    """With the rights of the user who checks; None where the API server does not answer."""
    try:
        return await connect(context)
    except (NotChecked, KubernetesError, Unreachable):
        return None


async def _close(provider: CloudProvider) -> None:
    try:
        await provider.close()
    except Exception:  # around one callback: what was found is worth more
        log.debug("provider failed to close", exc_info=True)


async def require_provider(context: CheckContext) -> CloudProvider:
    """A provider that is initialized; raises `NotChecked`."""
    try:
        return await start_provider(context)
    except (ConfigurationFault, ConfigurationFaults, CloudError) as error:
        raise NotChecked("the provider did not start; see cloud-provider") from error


# cloud-provider: it is there, takes its configuration, and has what the controllers need.


async def check_provider(context: CheckContext) -> Iterable[Finding]:
    """Whether the provider starts, and what it lacks."""
    settings = context.settings
    try:
        provider = await start_provider(context)
        if not settings.allow_untagged_cloud:
            require_cluster_id(provider, settings)
    except ConfigurationFaults as faults:
        return map(from_fault, faults.faults)
    except ConfigurationFault as fault:
        return [from_fault(fault)]
    except CloudError as error:
        return [failed(str(error), "report this to the provider's author")]
    parts = ("instances", "load_balancers", "routes", "volumes")
    present = [part.replace("_", " ") for part in parts if getattr(provider, part)]
    has = f"{settings.cloud_provider} takes its configuration; it has"
    fits = ok(f"{has} {', '.join(present) or 'nothing'}")
    return [*_missing_parts(context, provider)] or [fits]


def _missing_parts(context: CheckContext, provider: CloudProvider) -> Iterator[Finding]:
    name = context.settings.cloud_provider
    if context.runs(NODE, LIFECYCLE) and not provider.instances:
        yield warning(
            f"{name} knows nothing of machines: no node is initialized or removed",
            "choose a provider that does, or set --controllers=*,-cloud-node,-cloud-node-lifecycle",
        )
    if context.configures_routes and not provider.routes:
        yield warning(
            f"--cluster-cidr asks for routes, and {name} has none: they are left alone",
            "let the pod network do without, and set --configure-cloud-routes=false",
        )


# cloud-reads

ErrorMeaning = tuple[Callable[[str, str], Finding], str, str]
"""The kind of finding, the beginning of its message, and the remedy."""


@dataclass(frozen=True, slots=True)
class CloudRead:
    """One read of the cloud, what came of it, and what it cost by class of the budget."""

    part: str
    subject: str
    spent: Counter[str] = field(default_factory=Counter)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    error: CloudError | None = None
    missing_permissions: tuple[str, ...] = ()


@once
async def probe_reads(context: CheckContext) -> Sequence[CloudRead]:
    """Read each part that the controllers need, one after the other."""
    provider, read = await require_provider(context), partial(read_cloud, context.cloud_calls)
    nodes, reads = await or_none(list_nodes(context)) or (), list[CloudRead]()
    if provider.instances and context.runs(NODE, LIFECYCLE):
        describe, size = provider.instances.describe, provider.instances.batch_size
        for sample in sample_nodes(nodes, provider.provider_ids, size):
            reads.append(await read("instances", "machines of nodes", describe, sample))
        if isinstance(provider.instances, ReportsMissingPermissions) and not reads[-1].error:
            reads.append(await _read_rights("instances", provider.instances, read))
    if provider.routes and context.configures_routes:
        reads.append(await read("routes", "routes", provider.routes.list, nodes))
    if provider.load_balancers and context.runs(SERVICE):
        get = provider.load_balancers.get
        reads.append(await read("load balancers", "a load balancer", get, NO_SUCH_SERVICE))
        if isinstance(provider.load_balancers, ReportsMissingPermissions) and not reads[-1].error:
            rights = await _read_rights("load balancers", provider.load_balancers, read)
            reads.append(rights)
    if provider.volumes and context.runs(VOLUME):
        listed = await or_none(list_objects(context, "/api/v1/persistentvolumes")) or ()
        for volume in _sample_volume(provider.volumes, map(PersistentVolume, listed)):
            reads.append(await read("volumes", "a volume", provider.volumes.describe, [volume]))
    return reads


async def _read_rights(
    name: str, part: ReportsMissingPermissions, read: Callable[..., Awaitable[CloudRead]]
) -> CloudRead:
    missing: list[str] = []

    async def find() -> None:
        missing.extend(await invoke(part.missing_permissions))

    done = await read(name, "rights", find)
    return replace(done, missing_permissions=tuple(missing))


async def read_cloud(
    calls: Counter[str], part: str, subject: str, method: Callable[..., Any], *arguments: Any
) -> CloudRead:
    """Call a method of the provider; an error is part of the result.

    The cost, as `calls` counts it, is right when nothing else is read meanwhile.
    """
    before = Counter(calls)
    answers: Mapping[str, Answer] = {}
    error: CloudError | None = None
    try:
        result = await invoke(method, *arguments)
        answers = result if isinstance(result, Mapping) else {}
    except CloudError as failure:
        error = failure
    except Exception as bug:  # around one callback: someone else's code
        log.debug("provider failed", exc_info=True)
        error = CloudError(f"the provider failed: {bug!r}")
    return CloudRead(part, subject, calls - before, answers, error)


def sample_nodes(
    nodes: Sequence[Node], provider_ids: re.Pattern[str], size: int
) -> list[Sequence[Node]]:
    """Nodes to ask the cloud about, at most `size` in one read: some by name, some by ID.

    The two are asked about apart: a cloud needs a call for each.
    """
    ours = [node for node in nodes if not node.is_foreign(provider_ids)]
    by_name = [node for node in ours if not node.provider_id][:size]
    by_id = [node for node in ours if node.provider_id][:size]
    return [sample for sample in (by_name, by_id) if sample] or [[NO_SUCH_NODE]]


def _sample_volume(part: Volumes, volumes: Iterable[PersistentVolume]) -> list[PersistentVolume]:
    """One volume that the provider knows about, if there is one."""
    drivers, sources = part.csi_drivers, part.legacy_sources
    own = (each for each in volumes if each.csi_driver in drivers or sources & {*each.spec})
    return [*own][:1]


async def check_reads(context: CheckContext) -> Iterable[Finding]:
    """Whether the cloud answers these credentials."""
    return evaluate_reads(await probe_reads(context))


def evaluate_reads(reads: Sequence[CloudRead]) -> Iterator[Finding]:
    """One finding for all reads with the same problem; the first error stands for all."""
    failures: dict[ErrorMeaning, list[CloudRead]] = {}
    for read in reads:
        if read.error and (meaning := _meaning(read.error)):
            failures.setdefault(meaning, []).append(read)
    for (report, message, remedy), met in failures.items():
        subjects = ", ".join(dict.fromkeys(read.subject for read in met))
        yield report(f"{message} {subjects}: {met[0].error}", remedy)
    if missing := [right for read in reads for right in read.missing_permissions]:
        remedy = "allow them; the provider's page lists what is missing without them"
        yield warning(f"the cloud does not let us do all: {', '.join(missing)}", remedy)
    elif not failures:
        answered = ", ".join(dict.fromkeys(read.part for read in reads)) or "nothing"
        yield ok(f"the cloud answers about {answered}")


def _meaning(error: CloudError) -> ErrorMeaning | None:
    """What an error means for a start; that of a part that is not there means nothing."""
    match error:
        case ImplementedElsewhere() | NotImplementedByProvider():
            return None
        case Denied():
            where = "in --cloud-config or the environment"
            remedy = f"correct the credentials {where}, or allow them this call"
            return failed, "the cloud does not let us read", remedy
        case Throttled():
            remedy = "see who else uses this account; --cloud-rate and --cloud-reserve leave room"
            return warning, "the cloud throttled us when we read", remedy
        case Refused():
            return failed, "the cloud refused to read", "correct what it names"
    remedy = "check the address in --cloud-config, the way there, and that the cloud works"
    return failed, "no answer about", remedy
