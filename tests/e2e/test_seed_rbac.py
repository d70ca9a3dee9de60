"""In the place of an upstream controller: its command line and rights, and no manifest of ours."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ccm.controllers import VOLUME
from ccm.model.objects import Node
from ccm.sandbox.cloud.records import Volume
from ccm.sandbox.kubelets import new_machines, registration
from ccm.sandbox.observer import ZONE, missing_fields
from tests.support.environment import (
    NODES,
    SERVICES,
    VOLUMES,
    Environment,
    persistent_volume,
    service,
)
from tests.support.kube.access import Rule
from tests.support.running import Controlled, Supervisor, Where, until, waits_for_access

pytestmark = pytest.mark.real

COMMAND = Path(sys.executable).with_name("cloud-controller-manager")

FLAGS = (
    "--controllers=*",
    "--leader-elect=true",
    "--use-service-account-credentials",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    "--cluster-cidr=172.17.0.0/16",
)
"""Of the DaemonSet in Kubernetes' documentation, which may do everything."""

EVERYTHING: Rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def rule(resources: str, verbs: str, group: str = "") -> Rule:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


PUBLISHED = (
    rule("events", "create patch update"),
    rule("nodes", "*"),
    rule("nodes/status", "patch"),
    rule("services", "list patch update watch"),
    rule("services/status", "list patch update watch"),
    rule("serviceaccounts", "create get"),
    rule("persistentvolumes", "get list update watch"),
    rule("leases", "create get list watch update", "coordination.k8s.io"),
    rule("serviceaccounts/token", "create"),
)
"""As roles of upstream controllers are published: no right to patch a volume."""


def as_upstream(env: Environment, name: str, *rules: Rule) -> Environment:
    """The supervisor's account has this name and these rights; they outlive it."""
    kubeconfig = env.cluster.service_account_kubeconfig("kube-system", name, rules)
    return replace(env, where=replace(env.where, kubeconfig=kubeconfig))


async def add_work(env: Environment) -> None:
    """A node with a pod network, a Service, and a volume of the cloud."""
    await env.admin.add(new_machines(1, 1))
    await env.admin.add_volume(Volume(id="vol-1", zones=("zone-b",), region="region-1"))
    await env.api.post(NODES, registration("vm-1", "172.17.1.0/24"))
    await env.api.post(SERVICES, service(1))
    await env.api.post(VOLUMES, persistent_volume("vol-1", "vol-1"))


async def is_done(env: Environment, with_volume: bool) -> bool:
    node = Node(await env.api.get(f"{NODES}/vm-1"))
    conditions = {each["type"]: each["status"] for each in node.raw["status"]["conditions"]}
    web = await env.api.get(f"{SERVICES}/web-1")
    labels = (await env.api.get(f"{VOLUMES}/vol-1"))["metadata"].get("labels", {})
    return (
        not missing_fields(node)
        and conditions.get("NetworkUnavailable") == "False"
        and bool(web["status"]["loadBalancer"].get("ingress"))
        and (ZONE in labels) == with_volume
    )


def identities(supervisor: Supervisor) -> set[str]:
    return {*supervisor.status()["identities"]}


class DropIn(Supervisor):
    """The installed command. What a Pod gives by its account and volumes, variables give here."""

    def __init__(self, where: Where, *flags: str) -> None:
        self.runtime = where.directory / "run"
        variables = (
            f"CCM_KUBECONFIG={where.kubeconfig}",
            f"CCM_RUNTIME_DIR={self.runtime}",
            "CCM_SECURE_PORT=0",
        )
        cloud = ("--cloud-provider=simulated", f"--cloud-config={where.cloud_config}")
        words = [*variables, str(COMMAND), *cloud, *flags]
        Controlled.__init__(self, "drop-in", where.directory, words)

    def command(self, arguments: list[str]) -> list[str]:
        return ["env", "--unset=CCM_LONG", *arguments]  # which is of ours alone and names no flag


async def test_the_historical_command_works_with_the_rights_that_it_had(env: Environment) -> None:
    """The image is swapped and the flags stay."""
    seeded = as_upstream(env, "cloud-controller-manager", EVERYTHING)
    await add_work(env)
    with DropIn(seeded.where, *FLAGS) as supervisor:
        await until("all is done", lambda: is_done(env, with_volume=True))
        assert identities(supervisor) == {
            "kube-system/node-controller",
            "kube-system/route-controller",
            "kube-system/service-controller",
            "kube-system/cloud-controller-manager",
        }
        assert supervisor.end() == 0
    assert [route["cidr"] for route in (await env.admin.state())["routes"]] == ["172.17.1.0/24"]
    log = supervisor.log.read_text()
    assert log.count("flag has no effect flag=--allocate-node-cidrs") == 1
    assert "is deprecated" not in log
    assert "name no flag" not in log


async def test_what_upstream_never_did_is_left_out_where_no_one_may(env: Environment) -> None:
    published = as_upstream(env, "published", *PUBLISHED)
    await add_work(env)
    with published.supervisor(*FLAGS) as supervisor:
        await until("all is done", lambda: is_done(env, with_volume=False))
        assert {*supervisor.workers()} == {"node-0", "route", "service"}
        assert "controller left out" in supervisor.log.read_text()


@pytest.mark.parametrize("flags", [(), ("--use-service-account-credentials",)])
async def test_a_start_without_any_rights_waits_and_reports_why(
    env: Environment, flags: Sequence[str]
) -> None:
    readers = as_upstream(env, "reader", rule("nodes services persistentvolumes", "list watch"))
    with readers.supervisor(*flags, "--controllers=*") as supervisor:
        log = await until("it waits", partial(waits_for_access, supervisor))
    assert "no identity may do the work of the node worker" in log
    assert "ccm-supervisor manifests" in log


async def test_a_worker_asked_for_by_name_is_not_left_out(env: Environment) -> None:
    published = as_upstream(env, "published", *PUBLISHED)
    with published.supervisor(*FLAGS, f"--controllers={VOLUME}") as supervisor:
        log = await until("it waits", partial(waits_for_access, supervisor))
    assert "volume-label worker" in log
