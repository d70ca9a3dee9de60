"""`make demo-incus`: the table of `make demo`, with real instances and answers of real requests."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from ccm.bus.control import NotRunning, ask
from ccm.bus.paths import RuntimePaths
from ccm.cli.sandbox_view import view
from ccm.kube import config
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json, mapping, objects
from ccm.sandbox.components import Component, SandboxPaths, start_kubernetes
from ccm.sandbox.kubelets import pod_network, ready_condition, registration
from ccm.sandbox.observer import ZONE, NodeObserver
from ccm.sandbox.workload import WorkloadStatus
from tests.labs.incus.lab import Failed, Lab, running_lab
from tests.support.deadlines import Deadline

NAMES = ("node-1", "node-2", "node-3")
DRIVER, VOLUMES = "csi.incus.test", "/storage-pools/default/volumes/custom"
BALANCERS, SERVICES = "/networks/ovn0/load-balancers", "/api/v1/namespaces/default/services"
MORE = f"[Routes]\non-ovn = replug\n[Volumes]\ncsi-driver = {DRIVER}\n"
REQUESTS = 30
LIMIT = 90.0  # seconds for each step
CHECKS = 12.0  # seconds until the balancer has found twice that a node answers


@dataclass
class Demo:
    """What `view` shows of a sandbox, from a real Incus."""

    lab: Lab
    kube: Kube
    paths: SandboxPaths
    observer: NodeObserver
    power: dict[str, str] = field(default_factory=dict)
    workload: WorkloadStatus = field(default_factory=WorkloadStatus)
    story: list[str] = field(default_factory=list)

    async def create(self) -> None:
        """Nodes as kubelets register them, a Service, and a volume with its PersistentVolume."""
        ports = [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}]
        spec: Json = {"type": "LoadBalancer", "ports": ports}
        await self.kube.post(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
        with suppress(Failed):  # it is there
            self.lab.call("POST", VOLUMES, {"name": "data", "type": "custom"})
        csi = {"driver": DRIVER, "volumeHandle": f"{self.lab.project}/default/data"}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
        await self.kube.post(
            "/api/v1/persistentvolumes", {"metadata": {"name": "data"}, "spec": spec}
        )
        for name in NAMES:
            await self.kube.post("/api/v1/nodes", registration(name, pod_network(name)))

    async def look(self) -> None:
        """Read from Incus and from Kubernetes what there is."""
        records = {one["name"]: one for one in self.lab.get("/instances", recursion=1)}
        self.power = {name: one["status"].lower() for name, one in records.items()}
        backends = {
            one["name"].rpartition("-")[0]
            for balancer in self.lab.get(BALANCERS, recursion=1)
            for one in balancer["backends"]
        }
        nics = {name: one["expanded_devices"].get("eth0", {}) for name, one in records.items()}
        routed = {name for name in NAMES if nics.get(name, {}).get("ipv4.routes")}
        service = await self.kube.get(f"{SERVICES}/web")
        ingress = objects(
            mapping(mapping(service.get("status")).get("loadBalancer")).get("ingress")
        )
        volume = await self.kube.get("/api/v1/persistentvolumes/data")
        labels = mapping(mapping(volume.get("metadata")).get("labels"))
        address = str(ingress[0]["ip"]) if ingress else ""
        zone = str(labels.get(ZONE, ""))
        self.workload = WorkloadStatus(address, frozenset(backends), zone, frozenset(routed))

    async def until(self, what: str, is_there: Callable[[], bool]) -> None:
        """Wait for it, and note how long it took."""
        began, deadline = time.monotonic(), Deadline(LIMIT)
        await self.look()
        while not is_there():
            if deadline.has_passed():
                raise SystemExit(f"not within {LIMIT:g} s: {what}; there is {self.workload}")
            await asyncio.sleep(0.1)
            await self.look()
        self.story.append(f"{what} after {time.monotonic() - began:.1f} s")

    async def request(self) -> None:
        """Real requests to the Service's address, from outside the network of the nodes.

        A route takes a node's NIC out for a moment and a start needs a while: checks find both.
        """
        running = [name for name in NAMES if self.power[name] == "running"]
        await asyncio.to_thread(self.lab.set_state, running, "start")
        await asyncio.sleep(CHECKS)
        url = f"http://{self.workload.service_address}/"
        found = await asyncio.to_thread(self.lab.answers, url, REQUESTS)
        reported = ", ".join(f"{who} {count}" for who, count in sorted(found.items()))
        self.story.append(f"{REQUESTS} requests to {url}: {reported}")

    async def power_off(self, name: str) -> None:
        await asyncio.to_thread(self.lab.set_state, [name], "stop")
        await self.kubelet(name, is_ready=False)
        self.story.append(f"{name} is stopped, and its kubelet falls silent")

    async def power_on(self, name: str) -> None:
        await asyncio.to_thread(self.lab.set_state, [name], "start")
        await self.kubelet(name, is_ready=True)
        self.story.append(f"{name} is started")

    async def kubelet(self, name: str, is_ready: bool) -> None:
        body = {"status": {"conditions": [ready_condition(is_ready)]}}
        await self.kube.patch(f"/api/v1/nodes/{name}/status", MERGE_PATCH, body)

    async def show(self, console: Console) -> None:
        await self.look()
        control = RuntimePaths(self.paths.runtime).control
        try:
            status = await asyncio.to_thread(ask, control, {"command": "status"}, 2.0)
        except NotRunning as error:
            status = {"error": str(error)}
        tips = ("Look around", *(f"tests/labs/incus/lab.sh {what}" for what in TIPS))
        console.print(view(self, status, self.story, tips))  # type: ignore[arg-type]

    def is_shut_down(self, name: str) -> bool:
        seen = self.observer.nodes.get(name)
        return seen is not None and seen.node.is_shut_down


TIPS = (
    "incus lab -- list --project k8s   # the nodes",
    "incus lab -- network load-balancer list ovn0 --project k8s",
    "down   # end the lab",
)


async def start_supervisor(paths: SandboxPaths) -> Component:
    arguments = [
        "--cloud-provider=incus",
        f"--cloud-config={paths.cloud_config}",
        f"--kubeconfig={paths.kubeconfig}",
        f"--runtime-dir={paths.runtime}",
        "--cluster-cidr=10.244.0.0/16",
        "--node-monitor-period=1s",
        "--secure-port=0",
    ]
    return await Component.start("supervisor", paths, ["ccm.cli.main", "start", *arguments])


@asynccontextmanager
async def running(lab: Lab, directory: Path) -> AsyncIterator[Demo]:
    """The embedded API server and the supervisor; nothing of it stays in Incus."""
    paths = SandboxPaths(directory)
    paths.cloud_config.write_text(lab.config(more=MORE))
    kubernetes, _ = await start_kubernetes(paths)
    kube = Kube(await config.load(str(paths.kubeconfig)), "demo")
    observer = NodeObserver(kube)
    watching = asyncio.create_task(observer.run())
    supervisor = await start_supervisor(paths)
    try:
        yield Demo(lab, kube, paths, observer)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await kube.close()
        await supervisor.stop()
        await kubernetes.stop()
        clean(lab)


def clean(lab: Lab) -> None:
    """As if nothing had been."""
    for one in lab.get(BALANCERS, recursion=1):
        lab.delete(f"{BALANCERS}/{one['listen_address']}")
    lab.delete(f"{VOLUMES}/data")
    for name in NAMES:
        record = lab.instance(name)
        keys = ("architecture", "config", "devices", "ephemeral", "profiles", "description")
        kept = {key: record[key] for key in keys}
        kept["config"] = {k: v for k, v in record["config"].items() if not k.startswith("user.ccm")}
        kept["devices"] = {k: v for k, v in record["devices"].items() if k != "eth0"}
        lab.call("PUT", f"/instances/{name}", kept)
    lab.set_state(NAMES, "start")


async def run(lab: Lab, directory: Path) -> None:
    console = Console()
    async with running(lab, directory) as demo:
        await demo.create()
        await demo.until("3 Nodes are initialized", lambda: demo.observer.is_settled(len(NAMES)))
        await demo.until(
            "Service, routes and volume have what they need",
            lambda: bool(
                {*NAMES} <= demo.workload.service_backends
                and {*NAMES} <= demo.workload.routed
                and demo.workload.volume_zone
            ),
        )
        await demo.request()
        await demo.show(console)
        await demo.power_off("node-2")
        await demo.until(
            "node-2 has the shutdown taint and is no backend",
            lambda: demo.is_shut_down("node-2") and "node-2" not in demo.workload.service_backends,
        )
        await demo.request()
        await demo.show(console)
        await demo.power_on("node-2")
        await demo.until(
            "node-2 is back",
            lambda: not demo.is_shut_down("node-2") and "node-2" in demo.workload.service_backends,
        )
        await demo.request()
        await demo.show(console)


def main() -> None:
    with running_lab() as lab, tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(lab, Path(directory)))


if __name__ == "__main__":
    main()
