"""Who holds the Lease: nobody, one of ours or somebody else, and what that means for a start."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, not_checked, ok, warning
from ccm.checks.look.api import PATIENCE
from ccm.checks.look.lease import LeaseSeen
from ccm.checks.site import Site
from ccm.durations import format_duration
from ccm.errors import KubernetesError

OURS = "ccm-supervisor"  # as the API server notes the writer, from our user agent
IDENTITY = re.compile(r".+_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Host name and UUID: how upstream and we call ourselves, and other kinds of controllers do not."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`has_namespace` is None when it was not asked for, or we may not see."""

    name: str
    namespace: str
    is_elected: bool
    lease: LeaseSeen | None
    has_namespace: bool | None
    is_this_host: bool  # a supervisor that acts runs here


async def look(site: Site) -> Facts:
    lease = await site.lease()
    settings = site.settings
    return Facts(
        settings.leader_elect_resource_name,
        settings.leader_elect_resource_namespace,
        settings.leader_elect,
        lease,
        True if lease else await _has_namespace(site),
        (await site.runtime()).may_act,
    )


async def _has_namespace(site: Site) -> bool | None:
    kube, name = await site.kube(), site.settings.leader_elect_resource_namespace
    try:
        await kube.request("GET", f"/api/v1/namespaces/{name}", timeout=PATIENCE)
    except KubernetesError as error:
        if error.status in (403, 404):
            return None if error.status == 403 else False
        raise
    return True


def judge(facts: Facts) -> Iterator[Finding]:
    lease = facts.lease
    if not facts.is_elected:
        yield _without_election(facts)
    elif lease is None:
        yield from _not_there(facts)
    elif not lease.holder:
        yield ok(f"{_named(facts)} is free")
    elif not lease.is_alive:
        yield ok(f"{_named(facts)} ran out {format_duration(round(lease.age))} ago: {lease.holder}")
    else:
        yield _held(facts, lease)


def _without_election(facts: Facts) -> Finding:
    lease = facts.lease
    if lease and lease.is_alive:
        return failed(
            f"--leader-elect is false, and {lease.holder} leads by {_named(facts)}: both would act",
            "set --leader-elect=true, or stop the other one first",
        )
    return ok("not used: --leader-elect is false; run one replica only")


def _not_there(facts: Facts) -> Iterator[Finding]:
    if facts.has_namespace is False:
        yield failed(
            f"there is no namespace {facts.namespace}, so {_named(facts)} cannot be made",
            f"create it, or correct --leader-elect-resource-namespace: "
            f"kubectl create namespace {facts.namespace}",
        )
    elif facts.has_namespace is None and facts.namespace != "kube-system":
        yield not_checked(
            f"whether there is a namespace {facts.namespace}: this identity may not see it"
        )
    else:
        yield ok(f"{_named(facts)} is not there yet; the first replica makes it")


def _held(facts: Facts, lease: LeaseSeen) -> Finding:
    held = f"{_named(facts)} is held by {lease.holder}, which is alive"
    is_ours = lease.writer == OURS or (not lease.writer and facts.is_this_host)
    if is_ours:
        return ok(f"{held} and a ccm-supervisor: another replica stands by")
    if not IDENTITY.fullmatch(lease.holder):
        return warning(
            f"{held} and no cloud controller manager by its name: a start stands by for ever",
            "give it or us another Lease: --leader-elect-resource-name",
        )
    kind = f" and a {lease.writer}" if lease.writer else ""
    return warning(
        f"{held}{kind}: a start stands by until it ends",
        "stop that one when this one is to take over",
    )


def _named(facts: Facts) -> str:
    return f"Lease {facts.namespace}/{facts.name}"


CHECK = Check("lease", look, judge)
