"""Whether another cloud controller manager works here, as far as Pods and Leases show it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, NotChecked, failed, not_checked, ok, warning
from ccm.checks.look.lease import LeaseSeen, lease_in
from ccm.checks.site import Site
from ccm.manifests.subjects import NAME
from ccm.model.objects import Json, KubernetesObject, objects, text
from ccm.settings import Settings

KUBE_SYSTEM = "kube-system"
KIND = "cloud-controller-manager"
STOP = "stop it before this one starts: delete its DaemonSet, Deployment or static Pod"


@dataclass(frozen=True, slots=True)
class Facts:
    """None for what we may not list."""

    settings: Settings
    pods: Sequence[Json] | None
    leases: Sequence[LeaseSeen] | None


async def look(site: Site) -> Facts:
    now = await site.server_now()
    pods = await _listed(site, f"/api/v1/namespaces/{KUBE_SYSTEM}/pods", "pods")
    leases = await _listed(site, site.leases, "leases")
    seen = None if leases is None else [lease_in(raw, now) for raw in leases]
    return Facts(site.settings, pods, seen)


async def _listed(site: Site, path: str, what: str) -> list[Json] | None:
    await site.kube()
    try:
        return await site.list(path, what)
    except NotChecked:
        return None


def judge(facts: Facts) -> Iterator[Finding]:
    found = [*_of_pods(facts), *_of_leases(facts)]
    yield from found
    where = facts.settings.leader_elect_resource_namespace
    unseen = {f"Pods in {KUBE_SYSTEM}": facts.pods, f"Leases in {where}": facts.leases}
    missing = [what for what, value in unseen.items() if value is None]
    if missing:
        yield not_checked(f"this identity may not list {' and '.join(missing)}")
    elif not found:
        yield ok("none is seen")


def _of_leases(facts: Facts) -> Iterator[Finding]:
    """Leases of other names that look like one of a cloud controller manager."""
    for lease in facts.leases or ():
        is_other = lease.name != facts.settings.leader_elect_resource_name
        if lease.is_alive and is_other and KIND in lease.name:
            yield warning(
                f"Lease {lease.name} is held by {lease.holder}, which is alive: it acts as well",
                "stop it, unless it looks after the nodes of another cloud",
            )


def _of_pods(facts: Facts) -> Iterator[Finding]:
    pods = [pod for raw in facts.pods or () if _is_there(pod := KubernetesObject(raw))]
    ours = [pod.name for pod in pods if _is_ours(pod)]
    if len(ours) > 1 and not facts.settings.leader_elect:
        yield failed(
            f"--leader-elect is false, and there are {len(ours)} replicas of ours: all would act",
            "set --leader-elect=true, or run one replica only",
        )
    for pod in pods:
        for container in objects(pod.spec.get("containers")) if not _is_ours(pod) else ():
            yield from _of_container(pod.name, container, facts.settings)


def _is_there(pod: KubernetesObject) -> bool:
    return pod.status.get("phase") in ("Running", "Pending")


def _is_ours(pod: KubernetesObject) -> bool:
    return pod.labels.get("app.kubernetes.io/name") == NAME


def _of_container(pod: str, container: Json, settings: Settings) -> Iterator[Finding]:
    words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
    image = text(container.get("image"))  # its entry point need not stand in the Pod
    programs = {word.rpartition("/")[2] for word in (*words, image) if not word.startswith("-")}
    flags = _flags(words)
    cloud = flags.get("cloud-provider", "")
    if any(KIND in program for program in programs):
        yield _beside(pod, flags, settings)
    elif "kube-controller-manager" in programs and cloud not in ("", "external"):
        yield failed(
            f"Pod {pod} runs kube-controller-manager with --cloud-provider={cloud}: "
            "it runs cloud controllers of its own",
            "set --cloud-provider=external there",
        )


def _flags(words: Sequence[str]) -> Mapping[str, str]:
    pairs = (word.removeprefix("--").partition("=") for word in words if word.startswith("--"))
    return {name: value for name, _, value in pairs}


def _beside(pod: str, flags: Mapping[str, str], settings: Settings) -> Finding:
    """What another cloud controller manager means: it waits for the same Lease, or acts as well."""
    lease = flags.get("leader-elect-resource-name", KIND)
    is_elected = flags.get("leader-elect", "true").lower() not in ("false", "f", "0")
    cloud = flags.get("cloud-provider", "")
    if not (is_elected and settings.leader_elect):
        who = "--leader-elect=false" if settings.leader_elect else "no Lease here"
        return failed(f"Pod {pod} is a {KIND}, with {who}: both would act", STOP)
    if lease == settings.leader_elect_resource_name:
        return warning(f"Pod {pod} is a {KIND}: it and a start here exclude each other", STOP)
    if cloud and cloud != settings.cloud_provider:
        return warning(f"Pod {pod} is a {KIND} for {cloud}, with Lease {lease}", STOP)
    return failed(f"Pod {pod} is a {KIND} with another Lease, {lease}: both would act", STOP)


CHECK = Check("other-controllers", look, judge)
