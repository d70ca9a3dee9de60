"""Real kubelets, without containers, and kube-controller-manager beside the product.

Each test has machines and Nodes of its own in one cluster. The last one counts who wrote to Nodes.
"""

import asyncio
import json
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from ccm.kube.watch import ListCompleted, Updated, list_and_watch
from ccm.model.objects import PROVIDED_NODE_IP, SHUTDOWN_TAINT, Json, Node, objects
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Address, Machine
from ccm.sandbox.kubelets import NOT_READY, TTL, conditions, registration
from tests.support.cluster_nodes import connect
from tests.support.deadlines import within
from tests.support.kube.build import KUBELETS, find_binaries
from tests.support.kube.kubelets import POD_NETWORK, REMEDY, Kubelets
from tests.support.needed import needed
from tests.support.running import IS_LONG, RULES, Cloud, Supervisor, Where, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NODES = "/api/v1/nodes"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SILENCE = 45.0 if IS_LONG else 20.0  # seconds; a kubelet has a reason to write each 300
SETTLED = 15.0  # seconds: a kubelet reports once more 10 s after it registered
WAVE = ["wave-1", "wave-2", "wave-3"]
BY_IP = {"ip-v4": "v4", "ip-v6": "v6", "ip-both": "v4,v6", "ip-any": "::"}
NAMES = [
    *WAVE,
    *BY_IP,
    *("id-right", "id-foreign", "id-nowhere", "bootstrap", "returning", "stopped", "ended"),
    *("twin", "twin-ip"),
]
FLAGS = ("--controllers=*", f"--cluster-cidr={POD_NETWORK}", "--cloud-rate=write=200")
LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
)
OURS, KUBELET = "ccm-supervisor", "hollow-kubelet"


@dataclass(frozen=True)
class World:
    """One cluster with kubelets, its cloud and a leader."""

    kubelets: Kubelets
    cloud: Cloud
    admin: CloudAdmin
    supervisor: Supervisor

    async def machine(self, name: str, *addresses: Address) -> Machine:
        """A machine of the cloud that runs, with an address inside unless some are given."""
        where = addresses or (Address("InternalIP", f"10.99.0.{1 + NAMES.index(name)}"),)
        added = Machine(name, addresses=(Address("Hostname", name), *where))
        return (await self.admin.add([added]))[0]

    def node(self, name: str) -> Node | None:
        answer = self.kubelets.cluster.request("GET", f"{NODES}/{name}")
        return Node(answer.body) if answer.status == 200 else None

    async def initialized(self, name: str) -> Node:
        """The Node, once it has what the cloud knows, its network and no taint of ours."""

        def node() -> Node | None:
            found = self.node(name)
            is_done = found and not found.is_uninitialized and found.provider_id
            conditions = (
                {c["type"]: c["status"] for c in found.status["conditions"]} if found else {}
            )
            return found if is_done and conditions.get("NetworkUnavailable") == "False" else None

        return await until(f"{name} is initialized", node)


@pytest.fixture(scope="module")
def running(
    kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Kubelets, Cloud, Supervisor]]:
    programs = needed(find_binaries((KUBELETS,)), f"kubelets are not built: {REMEDY}")
    directory = tmp_path_factory.mktemp("kubelets")
    with ExitStack() as held:
        kubelets = held.enter_context(Kubelets.start(kube_binaries, programs, directory, NAMES))
        kubelets.cluster.grant("ccm", RULES)
        cloud = held.enter_context(Cloud(directory))
        where = Where(directory, kubelets.cluster.kubeconfig("ccm"), cloud.config)
        supervisor = held.enter_context(Supervisor(where, *FLAGS))
        yield kubelets, cloud, supervisor


@pytest.fixture
async def world(running: tuple[Kubelets, Cloud, Supervisor]) -> AsyncIterator[World]:
    kubelets, cloud, supervisor = running
    async with cloud.admin() as admin:
        yield World(kubelets, cloud, admin, supervisor)


def own_address(family: str) -> str:
    """This host's own address, as a kubelet takes no other for `--node-ip`."""
    command = ("ip", "-json", f"-{family[1]}", "address", "show", "scope", "global")
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found: list[str] = [
        info["local"] for one in listed for info in one.get("addr_info", ()) if info
    ]
    return needed(found[0] if found else "", f"this host has no global IP{family} address")


NOT_COMPARED = {
    r"metadata\.(uid|resourceVersion|creationTimestamp|managedFields).*": "the API server's",
    r"status\.(capacity|allocatable)\..*": "the machine's size",
    r"status\.nodeInfo\..*": "the machine's own",
    r"status\.conditions\.\d\.last.*": "when it was",
    r"status\.conditions\.3\.message": "what a kubelet that is not ready waits for",
    r"status\.(images|features|runtimeHandlers|declaredFeatures)\b.*": "what the runtime can do",
}
"""What of a Node may differ in the sandbox, and why; no cloud controller decides by it."""


@pytest.mark.parametrize("name", ["twin", "twin-ip"])
async def test_a_node_of_the_sandbox_is_the_one_that_a_real_kubelet_registers(
    name: str, world: World
) -> None:
    """Without a machine it stays as kubelet and kube-controller-manager make it."""
    cluster, flag = world.kubelets.cluster, own_address("v4") if name == "twin-ip" else ""
    states: list[Json] = []
    api = await connect(cluster.kubeconfig("admin"))
    async with within(), aclosing(list_and_watch(api, NODES)) as events:
        async for event in events:
            if isinstance(event, ListCompleted):
                world.kubelets.join(name, *([f"--node-ip={flag}"] if flag else []))
            elif isinstance(event, Updated) and event.raw["metadata"]["name"] == name:
                states.append(event.raw)
                node = Node(event.raw)
                is_known = node.pod_cidrs and TTL.items() <= node.annotations.items()
                if is_known and not _has(node, NOT_READY):
                    break
    await api.close()
    world.kubelets.kill(name)
    cluster.request("DELETE", f"{NODES}/{name}").expect()
    network = states[-1]["spec"]["podCIDR"]
    for state, made in (
        (states[0], registration(name, node_ip=flag, is_ready=False)),
        (states[-1], registration(name, network, node_ip=flag)),
    ):
        stored = cluster.request("POST", f"{NODES}?dryRun=All", made).expect().body
        if state is states[-1]:  # admission taints each new Node
            stored["spec"]["taints"] = [
                t for t in stored["spec"]["taints"] if t["key"] != NOT_READY
            ]
        assert dict(_fields(stored)) == dict(_fields(state))


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field by its path, but those that are not compared."""
    if any(re.fullmatch(pattern, path) for pattern in NOT_COMPARED):
        return
    if not isinstance(value, dict | list):
        yield path, value
        return
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _fields(one, f"{path}.{key}" if path else str(key))


async def test_kubelets_that_join_in_waves_get_what_the_cloud_knows(world: World) -> None:
    machines = [await world.machine(name) for name in WAVE]
    world.kubelets.cluster.forget_audit()
    for machine in machines:
        world.kubelets.join(machine.name)
    for machine in machines:
        node = await world.initialized(machine.name)
        assert node.provider_id == f"simulated://{machine.id}"
        assert {(a["type"], a["address"]) for a in node.addresses} == {
            (one.type, one.address) for one in machine.addresses
        }
        assert {key: node.labels[key] for key in LABELS} == {
            "topology.kubernetes.io/zone": machine.zone,
            "topology.kubernetes.io/region": machine.region,
            "node.kubernetes.io/instance-type": machine.type,
        }
        assert node.pod_cidrs
    writes = world.kubelets.node_writes()
    assert {key: count for key, count in writes.items() if key[0] == OURS} == {
        (OURS, ""): len(WAVE),
        (OURS, "status"): 2 * len(WAVE),  # addresses, and once there is a route its condition
    }


@pytest.mark.parametrize(("name", "families"), BY_IP.items())
async def test_node_ip_says_which_addresses_come_first(
    name: str, families: str, world: World
) -> None:
    known = {family: own_address(family) for family in ("v4", "v6")}
    await world.machine(name, *(Address("InternalIP", one) for one in known.values()))
    flag = ",".join(known.get(one, one) for one in families.split(","))
    world.kubelets.join(name, f"--node-ip={flag}")
    node = await world.initialized(name)
    # A kubelet that may choose in a family tells nobody what it was given.
    assert node.annotations.get(PROVIDED_NODE_IP) == (None if flag == "::" else flag)
    internal = [one["address"] for one in node.addresses if one["type"] == "InternalIP"]
    first = flag.split(",") if flag != "::" else [*known.values()]
    assert internal[: len(first)] == first


async def test_a_provider_id_given_by_the_kubelet_is_kept(world: World) -> None:
    machine = await world.machine("id-right")
    world.kubelets.join("id-right", f"--provider-id=simulated://{machine.id}")
    node = await world.initialized("id-right")
    assert node.provider_id == f"simulated://{machine.id}"


@pytest.mark.parametrize(
    ("name", "flags"),
    [("id-foreign", ("--provider-id=other://1",)), ("id-nowhere", ())],
)
async def test_a_kubelet_without_a_machine_here_stays_tainted_and_its_node_stays(
    name: str, flags: tuple[str, ...], world: World
) -> None:
    world.kubelets.join(name, *flags)
    await until(f"{name} registered", lambda: world.node(name))
    reasons = await until(
        f"the reason of {name}",
        lambda: world.supervisor.workers()["node-0"].get("reasons", {}).get(name),
    )
    assert {"id-foreign": "is not of simulated", "id-nowhere": "no such machine"}[name] in reasons
    node = world.node(name)
    assert node
    assert node.is_uninitialized
    world.kubelets.kill(name)
    world.kubelets.cluster.request("DELETE", f"{NODES}/{name}").expect()


async def test_a_kubelet_asks_for_its_serving_certificate_with_the_addresses_of_the_cloud(
    world: World,
) -> None:
    machine = await world.machine("bootstrap")
    world.kubelets.join("bootstrap", has_token=False)
    await world.initialized("bootstrap")
    cluster = world.kubelets.cluster

    def asked() -> list[str]:
        items = cluster.request("GET", REQUESTS).expect().body["items"]
        return [
            one["metadata"]["name"]
            for one in items
            if one["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
            and one["spec"]["username"] == "system:node:bootstrap"
        ]

    cluster.kubectl("certificate", "approve", *await until("a request", asked))
    file = world.kubelets.directory("bootstrap") / "pki" / "kubelet-server-current.pem"
    await until("the certificate", file.exists)
    names = x509.load_pem_x509_certificate(file.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    addresses = {str(one) for one in names.value.get_values_for_type(x509.IPAddress)}
    assert addresses == {one.address for one in machine.addresses if one.type == "InternalIP"}


async def test_a_node_deleted_under_its_kubelet_returns_with_the_kubelets_restart(
    world: World,
) -> None:
    """A kubelet registers once in its life."""
    await world.machine("returning")
    world.kubelets.join("returning")
    first = await world.initialized("returning")
    world.kubelets.kill("returning")
    world.kubelets.cluster.forget_audit()
    world.kubelets.join("returning", "--node-labels=example.com/pool=blue")
    await until("its kubelet is back", lambda: _is_back(world.kubelets, "returning"))
    same = world.node("returning")
    # The labels of a Node that is there it leaves as they are.
    assert same
    assert same.raw["metadata"]["labels"] == first.raw["metadata"]["labels"]
    assert (same.uid, same.provider_id, same.addresses) == (
        first.uid,
        first.provider_id,
        first.addresses,
    )
    assert not any(agent == OURS for agent, _ in world.kubelets.node_writes())
    world.kubelets.cluster.request("DELETE", f"{NODES}/returning").expect()
    world.kubelets.kill("returning")
    world.kubelets.join("returning")
    again = await world.initialized("returning")
    assert (again.provider_id, again.addresses) == (first.provider_id, first.addresses)
    assert again.uid != first.uid


def _is_back(kubelets: Kubelets, name: str) -> bool:
    """Whether the kubelet of this Node has found it registered, and gone on to renew its Lease."""
    own = [one for one in kubelets.cluster.audit() if one.user == f"system:node:{name}"]
    tries = [at for at, one in enumerate(own) if one.verb == "create" and one.code == 409]
    return bool(tries) and any(one.resource == "leases" for one in own[tries[0] :])


async def test_a_machine_that_stops_and_starts_and_one_that_ends(world: World) -> None:
    machines = [await world.machine(name) for name in ("stopped", "ended")]
    for machine in machines:
        world.kubelets.join(machine.name)
    for machine in machines:
        await world.initialized(machine.name)
    await world.admin.stop("stopped")
    await world.admin.terminate("ended")
    for machine in machines:
        world.kubelets.kill(machine.name)
    await until("the shutdown taint", lambda: _has(world.node("stopped"), SHUTDOWN_TAINT))
    await until("the ended machine's Node is deleted", lambda: not world.node("ended"))

    def silent() -> list[Json]:
        """What kube-controller-manager writes for a kubelet, once it misses its reports."""
        node = world.node("stopped")
        found = objects(node.status["conditions"]) if node else []
        own = [one for one in found if one["type"] != "NetworkUnavailable"]
        return own if own[-1]["status"] == "Unknown" else []

    reported = await until("the conditions are unknown", silent)
    unknown = conditions("Unknown")
    assert dict(_fields(reported, "status.conditions")) == dict(
        _fields(unknown, "status.conditions")
    )
    await world.admin.start("stopped")
    world.kubelets.join("stopped")

    def is_schedulable() -> bool:
        node = world.node("stopped")
        return bool(node and node.is_ready and not node.taints)

    await until("no taint is left", is_schedulable)


def _has(node: Node | None, taint: str) -> bool:
    return bool(node and any(one["key"] == taint for one in node.taints))


async def test_nobody_writes_to_nodes_when_nothing_happens_not_even_a_new_leader(
    world: World,
) -> None:
    where = Where(
        world.kubelets.cluster.directory,
        world.kubelets.cluster.kubeconfig("ccm"),
        world.cloud.config,
    )
    with Supervisor(where, *FLAGS, name="second") as second:
        await until("the second replica is ready", lambda: second.workers().get("node-0"))
        await until_quiet(world.kubelets)
        world.kubelets.cluster.forget_audit()
        world.supervisor.end()
        await until("it leads", second.is_leading)
        await asyncio.sleep(SILENCE)
        writes: Counter[Any] = world.kubelets.node_writes()
    assert not writes, writes


async def until_quiet(kubelets: Kubelets) -> None:
    """Until nobody has written to a Node for a while, however late kubelets are."""

    async def has_passed() -> bool:
        kubelets.cluster.forget_audit()
        await asyncio.sleep(SETTLED)
        return not kubelets.node_writes()

    await until("nobody writes", has_passed, 10 * SETTLED)
