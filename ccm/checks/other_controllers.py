"""Does another cloud controller manager run here, as far as Pods and Leases show it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ccm.checks.api_server import connect, list_objects, server_clock
from ccm.checks.context import Check, CheckContext, or_none
from ccm.checks.finding import Finding, failed, not_checked, ok, warning
from ccm.checks.leases import leases_path, parse_lease
from ccm.manifests.rbac import APP_NAME
from ccm.model.objects import Json, KubernetesObject, objects, text
from ccm.settings import Settings

KUBE_SYSTEM = "kube-system"
UPSTREAM = "cloud-controller-manager"
STOP_IT = "stop it before this one starts: delete its DaemonSet, Deployment or static Pod"


async def check_other_controllers(context: CheckContext) -> Iterable[Finding]:
    """Who else acts, or would, beside a start with these flags."""
    await connect(context)
    settings, now = context.settings, (await server_clock(context))()
    namespace = settings.leader_elect_resource_namespace
    pods = await or_none(list_objects(context, f"/api/v1/namespaces/{KUBE_SYSTEM}/pods"))
    leases = await or_none(list_objects(context, leases_path(settings)))
    found = [*_of_pods(pods or (), settings), *_of_leases(leases or (), settings, now)]
    sources = {f"Pods in {KUBE_SYSTEM}": pods, f"Leases in {namespace}": leases}
    if hidden := [what for what, listed in sources.items() if listed is None]:
        found.append(not_checked(f"this identity may not list {' and '.join(hidden)}"))
    return found or [ok("there is none")]


def _of_leases(leases: Iterable[Json], settings: Settings, now: float) -> Iterator[Finding]:
    """Leases of other names that look like one of a cloud controller manager."""
    for lease in (parse_lease(raw, now) for raw in leases):
        is_other = lease.name != settings.leader_elect_resource_name
        if lease.is_alive and is_other and UPSTREAM in lease.name:
            yield warning(
                f"Lease {lease.name} is held by {lease.holder}, which is alive: it acts as well",
                "stop it, unless it looks after the nodes of another cloud",
            )


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
    words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
    image = text(container.get("image"))  # its entry point need not stand in the Pod
    programs = {word.rpartition("/")[2] for word in (*words, image) if not word.startswith("-")}
    flags = _flags(words)
    cloud = flags.get("cloud-provider", "")
    if any(UPSTREAM in program for program in programs):
        yield _of_upstream(pod, flags, settings)
    elif "kube-controller-manager" in programs and cloud not in ("", "external"):
        yield failed(
            f"Pod {pod} runs kube-controller-manager with --cloud-provider={cloud}: "
            "it runs cloud controllers of its own",
            "set --cloud-provider=external there",
        )


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


CHECK = Check("other-controllers", check_other_controllers)
