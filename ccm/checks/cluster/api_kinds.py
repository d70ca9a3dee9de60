"""Whether the API server has a version we know and serves every kind we need."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ccm import __version__
from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, ok, some, warning
from ccm.checks.look.api import PATIENCE
from ccm.checks.site import Site
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.manifests.subjects import subjects
from ccm.model.objects import mapping, objects, text
from ccm.model.rbac import PolicyRule

OLDEST = (1, 30)
"""Older ones drop `ipMode` from a Service, and may run cloud controllers of their own."""
NEWEST = (1, 36)
"""What the tests run against."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`verbs` by group and resource; a group that is not there has none."""

    version: str
    rights: tuple[PolicyRule, ...]
    verbs: Mapping[tuple[str, str], frozenset[str]]


async def look(site: Site) -> Facts:
    kube = await site.kube()
    rights = tuple(right for each in subjects(site.settings, "") for right in each.rights)
    groups = sorted({right.group for right in rights})
    served = await asyncio.gather(*(_served(kube, group) for group in groups))
    verbs = {key: value for part in served for key, value in part.items()}
    version = text((await site.reach()).version.get("gitVersion"))
    return Facts(version, rights, verbs)


async def _served(kube: Kube, group: str) -> dict[tuple[str, str], frozenset[str]]:
    path = f"/apis/{group}/v1" if group else "/api/v1"
    try:
        listed = await kube.request("GET", path, timeout=PATIENCE)
    except KubernetesError as error:
        if error.status == 404:
            return {}
        raise
    return {
        (group, text(resource.get("name"))): frozenset(resource.get("verbs") or ())
        for resource in objects(mapping(listed).get("resources"))
    }


def judge(facts: Facts) -> Iterator[Finding]:
    yield _of_version(facts.version)
    missing = sorted({*_missing(facts.rights, facts.verbs)})
    if missing:
        yield failed(
            f"the API server does not serve: {some(missing)}",
            "let it serve them: see --runtime-config of kube-apiserver",
        )


def _of_version(version: str) -> Finding:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if OLDEST <= number <= NEWEST:
        return ok(f"Kubernetes {version}")
    return warning(
        f"Kubernetes {version or 'of no known version'}; "
        f"ccm-supervisor {__version__} is made for {known()}",
        "use versions that fit, or try in a test cluster what you need",
    )


def known() -> str:
    """The versions that we know."""
    return " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))


def _missing(
    rights: Iterable[PolicyRule], verbs: Mapping[tuple[str, str], frozenset[str]]
) -> Iterator[str]:
    for right in rights:
        lacking = [v for v in right.verbs if v not in verbs.get((right.group, right.resource), ())]
        if lacking:
            group = f".{right.group}" if right.group else ""
            yield f"{', '.join(lacking)} of {right.resource}{group}"


CHECK = Check("api-kinds", look, judge)
