"""Kubelets join: what they register, their addresses, IDs and certificates."""

import json
import subprocess
from contextlib import aclosing

import pytest
from cryptography import x509

from ccm.checks.serving_certificates import PATH, waiting_requests
from ccm.kube.watch import ListCompleted, Updated, list_and_watch
from ccm.model.objects import PROVIDED_NODE_IP, Json, Node
from ccm.sandbox.cloud.records import Address
from ccm.sandbox.kubelets import NOT_READY, TTL, registration
from tests.e2e.kubelets.world import (
    BY_IP,
    NODES,
    OURS,
    WAVE,
    World,
    fields,
    has_taint,
)
from tests.support.cluster_nodes import connect
from tests.support.deadlines import within
from tests.support.needed import needed
from tests.support.running import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
)


def own_address(family: str) -> str:
    """This host's own address, as a kubelet takes no other for `--node-ip`."""
    command = ("ip", "-json", f"-{family[1]}", "address", "show", "scope", "global")
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found: list[str] = [
        info["local"] for one in listed for info in one.get("addr_info", ()) if info
    ]
    return needed(found[0] if found else "", f"this host has no global IP{family} address")


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
                if is_known and not has_taint(node, NOT_READY):
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
        assert dict(fields(stored)) == dict(fields(state))


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
        assert node.status["nodeInfo"]["kubeletVersion"] == world.release
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
    # A kubelet that may choose in a family does not report what it was given.
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
    ("name", "flags", "why"),
    [
        ("id-foreign", ("--provider-id=other://1",), "is not of simulated"),
        ("id-nowhere", (), "no such machine"),
    ],
    ids=["foreign", "nowhere"],
)
async def test_a_kubelet_without_a_machine_here_stays_tainted_and_its_node_stays(
    name: str, flags: tuple[str, ...], why: str, world: World
) -> None:
    """Its reason may first be that the cloud has yet to answer."""
    world.kubelets.join(name, *flags)
    await until(f"{name} registered", lambda: world.node(name))
    await until(f"{name} waits since {why}", lambda: why in world.reason(name))
    node = world.node(name)
    assert node
    assert node.is_uninitialized
    world.kubelets.kill(name)
    world.kubelets.cluster.request("DELETE", f"{NODES}/{name}").expect()


async def test_a_kubelet_asks_for_its_serving_certificate_with_the_addresses_of_the_cloud(
    world: World,
) -> None:
    """When these change, the request is shown as stale; denied, it is followed by another one."""
    await world.machine("bootstrap")
    world.kubelets.join("bootstrap", has_token=False)
    await world.initialized("bootstrap")
    cluster = world.kubelets.cluster

    def waiting() -> dict[str, str]:
        """Why they are stale, or nothing, by the names of its requests."""
        items = cluster.request("GET", PATH).expect().body["items"]
        node = world.node("bootstrap")
        found = [one for one in waiting_requests(items) if one.node == "bootstrap"]
        return {one.name: one.why_stale(node) for one in found}

    before = await until("a request", waiting)
    assert not any(before.values())
    address = {"type": "InternalIP", "address": "10.99.1.1"}
    await world.admin.change("bootstrap", {"addresses": [address]})

    def are_stale() -> bool:
        return all("the Node has 10.99.1.1 by now" in why for why in waiting().values())

    await until("it is stale", are_stale)
    cluster.kubectl("certificate", "deny", *before)
    again = await until("another request", waiting)
    assert not any(again.values())
    cluster.kubectl("certificate", "approve", *again)
    file = world.kubelets.directory("bootstrap") / "pki" / "kubelet-server-current.pem"
    await until("the certificate", file.exists)
    names = x509.load_pem_x509_certificate(file.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [str(one) for one in names.value.get_values_for_type(x509.IPAddress)] == ["10.99.1.1"]
