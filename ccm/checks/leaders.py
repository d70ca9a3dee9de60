"""Which replica leads by our Lease, and which other controllers act beside it."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ccm.checks.api_server import REQUEST_TIMEOUT, connect, exists, list_objects, server_clock
from ccm.checks.context import CheckContext, once, or_none
from ccm.checks.finding import Finding, NotChecked, failed, not_checked, ok, warning
from ccm.checks.host import probe_runtime
from ccm.durations import format_duration
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.manifests.rbac import APP_NAME
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
    """A time as Kubernetes writes it, in seconds; 0 when it is invalid."""
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return 0.0


def age_of(obj: KubernetesObject, now: float) -> float:
    """Seconds since the object was created; `now` is the API server's wall clock."""
    return now - _timestamp(text(obj.meta.get("creationTimestamp")))


async def current_leader(context: CheckContext) -> str:
    """Who acts in this cluster now, as far as can be seen; empty when no controller does."""
    if (await probe_runtime(context)).is_leader:
        return "the supervisor of this host"
    lease = await or_none(probe_lease(context))
    return lease.holder if lease and lease.is_alive else ""


async def check_lease(context: CheckContext) -> Iterable[Finding]:
    """Whether a start would lead, stand by, or act beside someone else."""
    settings, lease = context.settings, await probe_lease(context)
    path = f"/api/v1/namespaces/{settings.leader_elect_resource_namespace}"
    has_namespace = True if lease else await exists(await connect(context), path)
    leads_here = (await probe_runtime(context)).is_leader
    return [evaluate_lease(settings, lease, has_namespace, leads_here)]


def evaluate_lease(
    settings: Settings, lease: ObservedLease | None, has_namespace: bool | None, leads_here: bool
) -> Finding:
    """What the holder of the Lease means for a start.

    `has_namespace` is None when we may not see it; `leads_here` says that a supervisor of this host
    is the leader.
    """
    namespace = settings.leader_elect_resource_namespace
    name = f"Lease {namespace}/{settings.leader_elect_resource_name}"
    if not settings.leader_elect:
        if lease and lease.is_alive:
            return failed(
                f"--leader-elect is false, and {lease.holder} leads by {name}: both would act",
                "set --leader-elect=true, or stop the other one first",
            )
        return ok("not used: --leader-elect is false; run one replica only")
    if lease is None:
        return _not_there(name, namespace, has_namespace)
    if not lease.holder:
        return ok(f"{name} is free")
    if not lease.is_alive:
        return ok(f"{name} expired {format_duration(round(lease.age))} ago: {lease.holder}")
    return _held(name, lease, leads_here)


def _not_there(name: str, namespace: str, has_namespace: bool | None) -> Finding:
    if has_namespace is False:
        return failed(
            f"there is no namespace {namespace}, so {name} cannot be created",
            f"create it, or correct --leader-elect-resource-namespace: "
            f"kubectl create namespace {namespace}",
        )
    if has_namespace is None and namespace != "kube-system":
        return not_checked(
            f"whether there is a namespace {namespace}: this identity may not see it"
        )
    return ok(f"{name} is not there yet; the first replica creates it")


def _held(name: str, lease: ObservedLease, leads_here: bool) -> Finding:
    held = f"{name} is held by {lease.holder}, which is alive"
    manager = lease.field_manager
    if manager == OUR_FIELD_MANAGER or (not manager and leads_here):
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


KUBE_SYSTEM = "kube-system"
UPSTREAM = "cloud-controller-manager"
STOP_IT = "stop it before this one starts: delete its DaemonSet, Deployment or static Pod"


async def check_other_controllers(context: CheckContext) -> Iterable[Finding]:
    """Who else acts, or would, beside a start with these flags."""
    settings, now = context.settings, (await server_clock(context))()
    namespace = settings.leader_elect_resource_namespace
    pods = await or_none(list_objects(context, f"/api/v1/namespaces/{KUBE_SYSTEM}/pods"))
    leases = await or_none(list_objects(context, leases_path(settings)))
    found = [*_of_pods(pods or (), settings), *of_leases(leases or (), pods or (), settings, now)]
    sources = {f"Pods in {KUBE_SYSTEM}": pods, f"Leases in {namespace}": leases}
    if hidden := [what for what, listed in sources.items() if listed is None]:
        found.append(not_checked(f"this identity may not list {' and '.join(hidden)}"))
    return found or [ok("there is none")]


def of_leases(
    leases: Iterable[Json], pods: Iterable[Json], settings: Settings, now: float
) -> Iterator[Finding]:
    """Leases of any other name that a cloud controller manager holds, and for which cloud.

    Its name shows it, or the program that renewed it, or the Pod that holds it. What the holder of
    our own Lease has beside it, for a leader migration, is no other's.
    """
    clouds = _clouds_by_pod(pods)
    read = [parse_lease(raw, now) for raw in leases]
    own = settings.leader_elect_resource_name
    ours = {lease.holder for lease in read if lease.name == own and lease.is_alive}
    for lease in read:
        if not lease.is_alive or lease.name == own or lease.holder in ours:
            continue
        pod, manager = lease.holder.rpartition("_")[0], lease.field_manager
        is_one = any(UPSTREAM in name for name in (lease.name, manager))
        if is_one or manager == OUR_FIELD_MANAGER or pod in clouds:
            cloud = clouds.get(pod)
            who = f"{lease.holder}{f', for {cloud},' if cloud else ','}"
            yield warning(
                f"Lease {lease.name} is held by {who} which is alive: it acts as well",
                "stop it, unless it looks after the nodes of another cloud",
            )


def _clouds_by_pod(pods: Iterable[Json]) -> Mapping[str, str]:
    """The `--cloud-provider` of each Pod of a cloud controller manager; empty if not given."""
    found = {}
    for pod in map(KubernetesObject, pods):
        for container in objects(pod.spec.get("containers")):
            words = _words(container)
            names = _programs(words, container)
            if _is_ours(pod) or any(UPSTREAM in name for name in names):
                found[pod.name] = _flags(words).get("cloud-provider", "")
    return found


def _of_pods(listed: Iterable[Json], settings: Settings) -> Iterator[Finding]:
    pods = [pod for pod in map(KubernetesObject, listed) if _is_active(pod)]
    ours = [pod.name for pod in pods if _is_ours(pod)]
    if len(ours) > 1 and not settings.leader_elect:
        yield failed(
            f"--leader-elect is false, and there are {len(ours)} replicas of ours: all would act",
            "set --leader-elect=true, or run one replica only",
        )
    for pod in pods:
        for container in objects(pod.spec.get("containers")) if not _is_ours(pod) else ():
            yield from _of_container(pod.name, container, settings)


def _is_active(pod: KubernetesObject) -> bool:
    return pod.status.get("phase") in ("Running", "Pending")


def _is_ours(pod: KubernetesObject) -> bool:
    return pod.labels.get("app.kubernetes.io/name") == APP_NAME


def _of_container(pod: str, container: Json, settings: Settings) -> Iterator[Finding]:
    words = _words(container)
    programs, flags = _programs(words, container), _flags(words)
    cloud = flags.get("cloud-provider", "")
    if any(UPSTREAM in program for program in programs):
        yield _of_upstream(pod, flags, settings)
    elif "kube-controller-manager" in programs and cloud not in ("", "external"):
        yield failed(
            f"Pod {pod} runs kube-controller-manager with --cloud-provider={cloud}: "
            "it runs cloud controllers of its own",
            "set --cloud-provider=external there",
        )


def _words(container: Json) -> list[str]:
    return [str(word) for part in ("command", "args") for word in container.get(part) or ()]


def _programs(words: Sequence[str], container: Json) -> set[str]:
    image = text(container.get("image"))  # its entry point need not stand in the Pod
    return {word.rpartition("/")[2] for word in (*words, image) if not word.startswith("-")}


def _flags(words: Sequence[str]) -> Mapping[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in words if word.startswith("--"))
    return {name: value for name, _, value in pairs}


def _of_upstream(pod: str, flags: Mapping[str, str], settings: Settings) -> Finding:
    """What another cloud controller manager means: it waits for the same Lease, or acts as well."""
    lease = flags.get("leader-elect-resource-name", UPSTREAM)
    is_elected = flags.get("leader-elect", "true").lower() not in ("false", "f", "0")
    cloud = flags.get("cloud-provider", "")
    if not (is_elected and settings.leader_elect):
        who = "--leader-elect=false" if settings.leader_elect else "no Lease here"
        return failed(f"Pod {pod} is a {UPSTREAM}, with {who}: both would act", STOP_IT)
    if lease == settings.leader_elect_resource_name:
        return warning(
            f"Pod {pod} is a {UPSTREAM}: it and a start here exclude each other", STOP_IT
        )
    if cloud and cloud != settings.cloud_provider:
        return warning(f"Pod {pod} is a {UPSTREAM} for {cloud}, with Lease {lease}", STOP_IT)
    return failed(f"Pod {pod} is a {UPSTREAM} with another Lease, {lease}: both would act", STOP_IT)
