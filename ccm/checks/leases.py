"""Who holds the Lease: nobody, one of ours or somebody else, and what that means for a start."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from ccm.checks.api_server import REQUEST_TIMEOUT, connect, exists, server_clock
from ccm.checks.context import Check, CheckContext, once, or_none
from ccm.checks.finding import Finding, NotChecked, failed, not_checked, ok, warning
from ccm.checks.host import probe_runtime
from ccm.durations import format_duration
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.model.objects import Json, KubernetesObject, mapping, objects, text
from ccm.settings import Settings

OUR_FIELD_MANAGER = "ccm-supervisor"  # as the API server notes it, from our user agent
CLIENT_GO_IDENTITY = re.compile(r".+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Host name and UUID: how upstream and we call ourselves, and other kinds of controllers do not."""


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """What a Lease says; `age` are seconds since the last renewal, by the API server's clock.

    `field_manager` is the program that renewed it, where the API server noted it.
    """

    name: str
    holder: str = ""
    field_manager: str = ""
    renew_time: str = ""
    duration: float = 0.0
    age: float = 0.0
    is_alive: bool = False


@once
async def probe_lease(context: CheckContext) -> ObservedLease | None:
    """The Lease that would be ours, also when `--leader-elect` is off; None when there is none."""
    settings = context.settings
    path = f"{leases_path(settings)}/{settings.leader_elect_resource_name}"
    wait = settings.leader_elect_retry_period + 1.0
    return await observe_lease(await connect(context), path, await server_clock(context), wait)


def leases_path(settings: Settings) -> str:
    """Where our Lease and those beside it are."""
    namespace = settings.leader_elect_resource_namespace
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


async def observe_lease(
    kube: Kube, path: str, server_clock: Callable[[], float], renewal_wait: float
) -> ObservedLease | None:
    """The Lease at `path`.

    One that seems expired is read again after `renewal_wait` seconds: its holder's clock may just
    be wrong.
    """
    first = await _read(kube, path, server_clock)
    if first is None or not first.holder or first.is_alive:
        return first
    await asyncio.sleep(min(renewal_wait, first.duration))
    second = await _read(kube, path, server_clock)
    if second and second.holder and second.renew_time != first.renew_time:
        return replace(second, is_alive=True)
    return second


async def _read(kube: Kube, path: str, server_clock: Callable[[], float]) -> ObservedLease | None:
    try:
        raw = await kube.request("GET", path, timeout=REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status == 404:
            return None
        if error.status == 403:
            raise NotChecked("this identity may not read the Lease") from error
        raise
    return parse_lease(raw, server_clock())


def parse_lease(raw: Json, now: float) -> ObservedLease:
    """What the object says; `now` is the API server's wall clock."""
    spec, meta = mapping(raw.get("spec")), mapping(raw.get("metadata"))
    holder, renew_time = text(spec.get("holderIdentity")), text(spec.get("renewTime"))
    seconds = spec.get("leaseDurationSeconds")
    duration = float(seconds) if isinstance(seconds, int) else 0.0
    age = now - _timestamp(renew_time) if renew_time else duration + 1
    return ObservedLease(
        name=text(meta.get("name")),
        holder=holder,
        field_manager=max(_renewals(meta.get("managedFields")), default=("", ""))[1],
        renew_time=renew_time,
        duration=duration,
        age=age,
        is_alive=bool(holder) and age <= duration,
    )


def _renewals(managed_fields: object) -> Iterator[tuple[str, str]]:
    """When, and which program wrote the time of the renewal."""
    for entry in objects(managed_fields):
        fields = mapping(mapping(entry.get("fieldsV1")).get("f:spec"))
        if "f:renewTime" in fields:
            yield text(entry.get("time")), text(entry.get("manager"))


def _timestamp(written: str) -> float:
    """A time as Kubernetes writes it, in seconds; 0 when it is none."""
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return 0.0


def age_of(obj: KubernetesObject, now: float) -> float:
    """Seconds since the object was created; `now` is the API server's wall clock."""
    return now - _timestamp(text(obj.meta.get("creationTimestamp")))


async def current_leader(context: CheckContext) -> str:
    """Who acts in this cluster now, as far as can be seen; empty when nobody does."""
    if (await probe_runtime(context)).is_leader:
        return "the supervisor of this host"
    lease = await or_none(probe_lease(context))
    return lease.holder if lease and lease.is_alive else ""


# lease


@dataclass(frozen=True, slots=True)
class LeaseEvidence:
    """`has_namespace` is None when we may not see it."""

    name: str
    namespace: str
    is_elected: bool
    lease: ObservedLease | None
    has_namespace: bool | None
    leads_here: bool  # a supervisor of this host is the leader

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"


async def check_lease(context: CheckContext) -> Iterable[Finding]:
    """Whether a start would lead, stand by, or act beside somebody else."""
    settings, lease = context.settings, await probe_lease(context)
    namespace = settings.leader_elect_resource_namespace
    path = f"/api/v1/namespaces/{namespace}"
    evidence = LeaseEvidence(
        settings.leader_elect_resource_name,
        namespace,
        settings.leader_elect,
        lease,
        True if lease else await exists(await connect(context), path),
        (await probe_runtime(context)).is_leader,
    )
    return [evaluate_lease(evidence)]


def evaluate_lease(evidence: LeaseEvidence) -> Finding:
    """What the holder of the Lease means for a start."""
    lease = evidence.lease
    if not evidence.is_elected:
        if lease and lease.is_alive:
            return failed(
                f"--leader-elect is false, and {lease.holder} leads by {evidence}: both would act",
                "set --leader-elect=true, or stop the other one first",
            )
        return ok("not used: --leader-elect is false; run one replica only")
    if lease is None:
        return _not_there(evidence)
    if not lease.holder:
        return ok(f"{evidence} is free")
    if not lease.is_alive:
        return ok(f"{evidence} expired {format_duration(round(lease.age))} ago: {lease.holder}")
    return _held(evidence, lease)


def _not_there(evidence: LeaseEvidence) -> Finding:
    namespace = evidence.namespace
    if evidence.has_namespace is False:
        return failed(
            f"there is no namespace {namespace}, so {evidence} cannot be created",
            f"create it, or correct --leader-elect-resource-namespace: "
            f"kubectl create namespace {namespace}",
        )
    if evidence.has_namespace is None and namespace != "kube-system":
        return not_checked(
            f"whether there is a namespace {namespace}: this identity may not see it"
        )
    return ok(f"{evidence} is not there yet; the first replica creates it")


def _held(evidence: LeaseEvidence, lease: ObservedLease) -> Finding:
    held = f"{evidence} is held by {lease.holder}, which is alive"
    manager = lease.field_manager
    if manager == OUR_FIELD_MANAGER or (not manager and evidence.leads_here):
        return ok(f"{held} and a ccm-supervisor: another replica stands by")
    if not CLIENT_GO_IDENTITY.fullmatch(lease.holder):
        return warning(
            f"{held} and no cloud controller manager by its name: a start stands by for ever",
            "give it or us another Lease: --leader-elect-resource-name",
        )
    return warning(
        f"{held}{f' and a {manager}' if manager else ''}: a start stands by until it ends",
        "stop that one when this one is to take over",
    )


CHECK = Check("lease", check_lease)
