"""True nodes inside the lab's instances: requests through OVN and kube-proxy to Pods go on.

Four streams of requests: a Service for each traffic policy, each with an address of both families.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ccm.kube.client import MERGE_PATCH
from ccm.model.objects import Json
from ccm.providers.incus.lb.request import family_of
from tests.labs.incus.kubelets import IMAGE, TrueNodes
from tests.labs.incus.lab import Lab
from tests.providers.incus.test_incus_balancers import ROOT
from tests.providers.incus.test_incus_traffic import (
    CALM,
    LEAVING,
    LIMIT,
    NAMES,
    Load,
    Lost,
    Site,
    Traffic,
    check_events,
    check_starts,
)
from tests.support.cluster_nodes import connect
from tests.support.environment import NODES, SERVICES
from tests.support.kube.build import KUBELETS, find_binaries
from tests.support.kube.build import NODES as PROGRAMS
from tests.support.kube.kubelets import Kubelets
from tests.support.needed import needed
from tests.support.running import RULES, Where, in_background, long, until

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(900)]

PODS = "/api/v1/namespaces/default/pods"
POLICIES = {"Cluster": 30180, "Local": 30181}
STREAMS = 2 * len(POLICIES)
WITHOUT = "node-3"  # its Pod is one of the policy Local only: for Cluster it sends requests on
REPLACED = "node-2"
INTERVAL = 0.04  # seconds from one request to the next of a stream: 100 a second by all
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
OURS_WITHIN = 5.0  # seconds from a change of backends to a request that it may have lost
LINGERS = 25  # seconds that a Pod serves on after its end was asked for


def service(policy: str, port: int) -> Json:
    return {
        "metadata": {"name": f"web-{policy.lower()}"},
        "spec": {
            "type": "LoadBalancer",
            "externalTrafficPolicy": policy,
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {policy: "yes"},
            "ports": [{"port": 80, "targetPort": 8080, "nodePort": port}],
        },
    }


def pod(node: str) -> Json:
    """On the host's network, so that other nodes reach it without routes for Pods."""
    policies = ("Local",) if node == WITHOUT else POLICIES
    serving = {"httpGet": {"port": 8080}, "periodSeconds": 1}
    container = {
        "name": "web",
        "image": IMAGE,
        "args": ["http"],
        "env": [{"name": "NODE", "value": node}],
        "readinessProbe": serving,
        "lifecycle": {"preStop": {"sleep": {"seconds": LINGERS}}},
    }
    return {
        "metadata": {"name": f"web-{node}", "labels": dict.fromkeys(policies, "yes")},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": LINGERS + 5,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


@dataclass(frozen=True)
class TrueSite(Site):
    """The same with true nodes and their Pods."""

    true: TrueNodes
    changes: list[float] = field(default_factory=list)
    """When the backends of load balancers were seen to have changed."""

    async def are_backends(self, *names: str) -> None:
        await super().are_backends(*names)
        self.changes.append(time.monotonic())

    def is_ours(self, lost: Lost) -> bool:
        """Whether it is near one of these changes: afterwards nothing of ours is under way."""
        return any(abs(lost.began - at) < OURS_WITHIN for at in self.changes)

    async def join(self, name: str, labels: str = "") -> None:
        await asyncio.to_thread(self.true.join, name, labels)
        await until(f"{name} is initialized and ready", lambda: self.has_joined(name), LIMIT)
        await self.api.post(PODS, pod(name))
        await until("its Pod is ready", lambda: self.has_ready_pod(name), LIMIT)

    async def has_joined(self, name: str) -> bool:
        node = (await self.nodes()).get(name)
        return bool(node and is_ready(node) and not node["spec"].get("taints"))

    async def has_ready_pod(self, name: str) -> bool:
        return is_ready(await self.api.get(f"{PODS}/web-{name}"))

    async def served(self) -> dict[str, str]:
        """The addresses of all Services by policy and family; none while one is missing."""
        found: dict[str, str] = {}
        for policy in POLICIES:
            status = (await self.api.get(f"{SERVICES}/web-{policy.lower()}"))["status"]
            ingress = status["loadBalancer"].get("ingress") or []
            found |= {f"{policy} {family_of(one['ip'])}": one["ip"] for one in ingress}
        return found if len(found) == STREAMS else {}

    def backends(self) -> set[str]:
        """The instances behind all balancers; none while they differ."""
        each = [
            frozenset(one["name"].rpartition("-")[0] for one in record["backends"])
            for record in self.lab.get(ROOT, recursion=1)
        ]
        return set(each[0]) if len(each) == STREAMS and len({*each}) == 1 else set()

    async def replace(self, name: str) -> None:
        """Traffic first, then the Pod, then the machine; a new one of the same name joins.

        It gets no traffic before kube-proxy and its Pod are there: OVN sends requests to a new
        backend until checks have failed there.
        """
        taints = (await self.nodes())[name]["spec"].get("taints") or []
        body: Json = {"spec": {"taints": [*taints, LEAVING]}}
        await self.api.patch(f"{NODES}/{name}", MERGE_PATCH, body)
        await self.are_backends(*{*NAMES} - {name})
        await asyncio.sleep(0.5)  # requests that are under way there
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": f"web-{name}"},
        }
        await self.api.post(f"{PODS}/web-{name}/eviction", eviction)
        await until("its Pod is gone", lambda: self.is_gone(PODS, f"web-{name}"), LIMIT)
        await asyncio.to_thread(self.lab.remove, name)
        await until(f"node {name} is gone", lambda: self.is_gone(NODES, name), LIMIT)
        await asyncio.to_thread(self.lab.create, name)
        await self.join(name, f"{EXCLUDED}=true")
        for port in POLICIES.values():
            await until("it sends on", partial(self.true.is_serving, name, port), LIMIT)
        body = {"metadata": {"labels": {EXCLUDED: None}}}
        await self.api.patch(f"{NODES}/{name}", MERGE_PATCH, body)
        await self.are_backends(*NAMES)

    async def is_gone(self, path: str, name: str) -> bool:
        items = (await self.api.get(path))["items"]
        return name not in {one["metadata"]["name"] for one in items}


def is_ready(thing: Json) -> bool:
    """A Pod or a Node."""
    found = {one["type"]: one["status"] for one in thing["status"].get("conditions", ())}
    return found.get("Ready") == "True"


@pytest.fixture
def control_plane(kube_binaries: Path, tmp_path: Path) -> Iterator[Kubelets]:
    controllers = needed(find_binaries((KUBELETS,)), "not built: make kubelets")
    with Kubelets.start(kube_binaries, (controllers, controllers), tmp_path, NAMES) as started:
        started.cluster.grant("ccm", RULES)
        yield started


@pytest.fixture
async def site(
    control_plane: Kubelets, lab: Lab, kube_binaries: Path, tmp_path: Path
) -> AsyncIterator[TrueSite]:
    programs = needed(find_binaries(PROGRAMS), "not installed: tests/labs/kubelets/lab.sh install")
    config = tmp_path / "incus.conf"
    config.write_text(lab.config())
    cluster = control_plane.cluster
    api = await connect(cluster.kubeconfig("admin"))
    true = TrueNodes(lab, cluster, kube_binaries, programs)
    yield TrueSite(api, lab, Where(tmp_path, cluster.kubeconfig("ccm"), config), true)
    await api.close()
    for one in lab.get(ROOT, recursion=1):
        lab.delete(f"{ROOT}/{one['listen_address']}")
    lab.remove(*NAMES)  # and with them all that was started there
    true.clean()
    lab.create(*NAMES)


async def test_no_request_to_true_pods_is_lost_by_us(site: TrueSite) -> None:
    """IN33, IN35, IN40: requests go on while processes are killed and a node is replaced."""
    with ExitStack() as running:
        pair = [running.enter_context(site.supervisor(name)) for name in ("one", "two")]
        await asyncio.gather(*map(site.join, NAMES))
        began = time.monotonic()
        for policy, port in POLICIES.items():
            await site.api.post(SERVICES, service(policy, port))
        found = await until("the Services have their addresses", site.served, LIMIT)
        await site.are_backends(*NAMES)
        loads = {
            name: Load(urlsplit(site.lab.forward(address, 80)), INTERVAL)
            for name, address in found.items()
        }
        for load in loads.values():
            await until("requests arrive", partial(is_answered, load), LIMIT)
        print(f"served by all addresses after {time.monotonic() - began:.1f} s")
        traffic = Traffic(site.lab, loads)
        async with in_background(traffic.run()):
            async with traffic.during("nothing"):
                await asyncio.sleep(3 * CALM)
            for name, load in loads.items():
                assert {*load.nodes} == {*NAMES} - ({WITHOUT} if "Cluster" in name else set())
            await check_events(site, traffic, *pair)
            await check_starts(site, traffic, running)
            assert not traffic.failed, traffic.failed[:5]
            async with traffic.during(f"{REPLACED} drained and replaced"):
                await site.replace(REPLACED)
            lost = [one for load in loads.values() for one in load.failed]
            print(f"backends changed at {site.changes}, lost: {lost}")
            assert not [*filter(site.is_ours, lost)]
        for policy in POLICIES:
            await site.api.request("DELETE", f"{SERVICES}/web-{policy.lower()}")
        await until("nothing is left", lambda: not site.lab.get(ROOT), LIMIT)


async def is_answered(load: Load) -> bool:
    """Whether one request is, which is not counted."""
    probe = Load(load.url)
    await probe.request()
    return not probe.failed
