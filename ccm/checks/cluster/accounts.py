"""Whether the service accounts of the workers exist, where they act as their own."""

import asyncio
from collections.abc import Iterator, Mapping

from ccm.checks.check import Check
from ccm.checks.cluster.rights import REMEDY
from ccm.checks.finding import Finding, failed, not_checked, ok, some
from ccm.checks.look.api import PATIENCE
from ccm.checks.site import Site
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.kube.identity import NAMESPACE
from ccm.manifests.subjects import subjects

Facts = Mapping[str, bool | None]
"""Service account → whether it exists; None where we may not see."""


async def look(site: Site) -> Facts:
    if not site.settings.use_service_account_credentials:
        return {}
    kube = await site.kube()
    _, *workers = subjects(site.settings, "")
    names = [worker.name for worker in workers]
    found = await asyncio.gather(*(_exists(kube, name) for name in names))
    return dict(zip(names, found, strict=True))


async def _exists(kube: Kube, name: str) -> bool | None:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}"
    try:
        await kube.request("GET", path, timeout=PATIENCE)
    except KubernetesError as error:
        if error.status in (403, 404):
            return None if error.status == 403 else False
        raise
    return True


def judge(exists: Facts) -> Iterator[Finding]:
    if not exists:
        yield ok("all processes act as the same identity")
        return
    unseen = [name for name, answer in exists.items() if answer is None]
    missing = [name for name, answer in exists.items() if answer is False]
    if missing:
        yield failed(f"no service account in {NAMESPACE}: {', '.join(missing)}", REMEDY)
    if unseen:
        yield not_checked(f"this identity may not read service accounts: {some(unseen)}")
    if not missing and not unseen:
        yield ok(f"there is an account for each: {', '.join(exists)}")


CHECK = Check("service-accounts", look, judge)
