"""All controllers do their work under exactly the rendered rights, and use each of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from tests.e2e.rbac.grants import Grain, applied, removed, rendered, user
from tests.e2e.rbac.story import FLAGS, Page, Story
from tests.support.kube.audit import AuditEntry
from tests.support.kube.cluster import RealCluster
from tests.support.kube.ports import ReservedPort
from tests.support.running import (
    IS_LONG,
    Cloud,
    Supervisor,
    Where,
    command,
    long,
    until,
    waits_for_access,
)

pytestmark = pytest.mark.real

SUPERVISOR = "ccm-supervisor"
ONE = pytest.param((), id="one-account")
EACH = pytest.param(("--use-service-account-credentials",), id="account-each")
SAMPLE = ("cloud-node-controller", "delete")
"""Whose right is removed in a short run, too."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """What is in force in a cluster: the flags, each right with its role, and where to read."""

    cluster: RealCluster
    flags: tuple[str, ...]
    grains: dict[Grain, str]
    page: Page

    @property
    def own(self) -> dict[Grain, str]:
        """What our roles grant; the API server's own ones are not ours to trim."""
        return {grain: role for grain, role in self.grains.items() if "ccm-supervisor" in role}

    def asked(self, since: int) -> Iterator[AuditEntry]:
        """The requests of its accounts about objects; about oneself everybody may ask."""
        users = {user(grain.account) for grain in self.grains}
        entries = islice(self.cluster.audit(), since, None)
        return (
            entry
            for entry in entries
            if entry.user in users
            and entry.resource
            and not entry.resource.startswith("selfsubject")
        )

    def now(self) -> int:
        return sum(1 for _ in self.cluster.audit())

    @asynccontextmanager
    async def stage(self, api: Kube, directory: Path) -> AsyncIterator[tuple[Story, Where]]:
        """A story in a cloud of its own, and the whereabouts of the supervisor's account."""
        directory.mkdir(exist_ok=True)
        kubeconfig = self.cluster.service_account_kubeconfig("kube-system", SUPERVISOR)
        with Cloud(directory) as cloud:
            async with cloud.admin() as admin:
                story = Story(api, admin)
                yield story, Where(directory, kubeconfig, cloud.config)
                await story.forget()


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, cluster: RealCluster) -> Iterator[Deployed]:
    port = ReservedPort()
    serving = ("--bind-address=127.0.0.1", f"--secure-port={port.number}", "--permit-port-sharing")
    flags = (*FLAGS, *serving, *request.param)
    with applied(cluster, rendered("--cloud-provider=simulated", *flags)) as grains:
        page = Page(f"https://127.0.0.1:{port.number}/metrics", cluster.token("admin"))
        yield Deployed(cluster, flags, grains, page)
    port.release()


@pytest.mark.parametrize("deployed", [ONE, EACH], indirect=True)
async def test_every_right_is_used_and_no_other_is_asked_for(
    deployed: Deployed, api: Kube, tmp_path: Path
) -> None:
    since = deployed.now()
    async with deployed.stage(api, tmp_path) as (story, where):
        with Supervisor(where, *deployed.flags, "--v=9") as supervisor:
            await asyncio.to_thread(supervisor.wait_running)
            await story.tell(supervisor, deployed.page)
            reported = json.dumps([supervisor.status(), await api.get("/api/v1/events")])
            assert supervisor.end() == 0
    entries = [*deployed.asked(since)]
    assert [entry.uri for entry in entries if entry.code == 403] == []
    used = {grain for grain in deployed.grains for entry in entries if grain.allows(entry)}
    assert deployed.own.keys() - used == set()
    assert {*deployed.grains.values()} == {deployed.grains[grain] for grain in used}
    beyond = [entry for entry in entries if not any(grain.allows(entry) for grain in used)]
    assert [f"{entry.user} {entry.verb} {entry.uri}" for entry in beyond] == []
    assert [*places_of_tokens(tmp_path, reported)] == []


def places_of_tokens(directory: Path, *texts: str) -> Iterator[str]:
    """Where a service account's token is written down: all begin with the same JSON."""
    yield from (text for text in texts if "eyJ" in text)
    for path in directory.rglob("*"):
        if path.is_file() and b"eyJ" in path.read_bytes():
            yield str(path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("deployed", [EACH], indirect=True)
async def test_without_a_right_its_work_is_refused(
    deployed: Deployed, api: Kube, tmp_path: Path
) -> None:
    """A right a time, each end to end; with CCM_LONG all of them."""
    for number, (grain, role) in enumerate(deployed.own.items()):
        if (grain.account, grain.verb) == SAMPLE or IS_LONG:
            with removed(deployed.cluster, grain, role):
                async with deployed.stage(api, tmp_path / str(number)) as (story, where):
                    with Supervisor(where, *deployed.flags) as supervisor:
                        await until_refused(grain, deployed, story, supervisor)


async def until_refused(
    grain: Grain, deployed: Deployed, story: Story, supervisor: Supervisor
) -> None:
    """Tell the story until just this is forbidden; it can go on no more.

    Whoever has no other right to work does not even start.
    """
    since = deployed.now()

    async def is_refused() -> bool:
        entries = deployed.asked(since)
        if any(entry.code == 403 and grain.allows(entry) for entry in entries):
            return True
        log = supervisor.log.read_text()
        what = f"{grain.account} may not {grain.verb} {grain.resource}"
        return "no identity may do the work of" in log and what in log

    telling = asyncio.create_task(story.tell(supervisor, deployed.page))
    try:
        await until(f"{grain} is missed", is_refused)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


@pytest.mark.parametrize("deployed", [EACH], indirect=True)
async def test_a_supervisor_that_may_not_have_a_token_reports_that_and_waits(
    deployed: Deployed, api: Kube, tmp_path: Path
) -> None:
    account = ("kube-system", "route-controller")
    grain = Grain(SUPERVISOR, "create", "", "serviceaccounts/token", *account)
    with removed(deployed.cluster, grain, deployed.grains[grain]):
        async with deployed.stage(api, tmp_path) as (_, where):
            with Supervisor(where, *deployed.flags) as supervisor:
                log = await until("it waits", partial(waits_for_access, supervisor))
    assert "kube-system/route-controller" in log
    assert "ccm-supervisor manifests" in log


@long
@pytest.mark.parametrize("deployed", [EACH], indirect=True)
async def test_a_worker_has_its_account_whatever_happens(
    deployed: Deployed, api: Kube, tmp_path: Path
) -> None:
    """The account is recreated, a successor takes over, and another replica."""
    names = (f"vm-{number}" for number in count(1))
    async with deployed.stage(api, tmp_path) as (story, where):
        with Supervisor(where, *deployed.flags) as first:
            await story.joins(next(names))
            began = seconds_left(first)
            make_again(deployed.cluster, "cloud-node-controller")

            async def is_renewed() -> bool:
                await story.joins(next(names))
                return seconds_left(first) > began

            await until("the token that is worth nothing now is replaced", is_renewed)
            node = first.workers()["node-0"]
            assert node["restarts"] == 0
            await command(first, "restart", worker="node-0")
            await until("it is replaced", lambda: first.workers()["node-0"]["pid"] != node["pid"])
            await story.joins(next(names))
            with Supervisor(where, *deployed.flags, name="second") as second:
                await until("it stands by", lambda: is_standby(second))
                assert first.end() == 0
                await story.joins(next(names))


def seconds_left(supervisor: Supervisor) -> float:
    """How long the token of the node worker is good."""
    account = supervisor.status()["identities"]["kube-system/cloud-node-controller"]
    return float(account["seconds_left"])


def make_again(cluster: RealCluster, account: str) -> None:
    """Now there is another account of the same name."""
    path = "/api/v1/namespaces/kube-system/serviceaccounts"
    cluster.request("DELETE", f"{path}/{account}").expect()
    cluster.request("POST", path, {"metadata": {"name": account}}).expect()


def is_standby(supervisor: Supervisor) -> bool:
    return {worker["state"] for worker in supervisor.workers().values()} == {"standby"}
