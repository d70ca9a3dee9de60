"""What a person does with kubectl, the one that is built for the tests or else that of the host."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from tests.integration.api_server.client import (
    EVENTS,
    LEASES,
    NODES,
    Api,
    event,
    new_balancer,
    new_volume,
)
from tests.support.deadlines import timeout, within
from tests.support.kube.build import find_binaries

NODE = """
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{zone: {zone}}}, annotations: {{note: {zone}}}}}
spec: {{providerID: "x://{name}"}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  type: LoadBalancer
  selector: {{app: web}}
  ports: [{{name: http, port: {port}}}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: {name}}}
spec: {{holderIdentity: {zone}, leaseDurationSeconds: 15}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}}}
data: {{zone: {zone}}}
"""
KINDS = "node service lease.coordination.k8s.io configmap"


class Kubectl:
    """Runs kubectl against one server with a discovery cache of its own."""

    def __init__(self, program: str, kubeconfig: Path, cache: Path) -> None:
        self._command = [program, f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Return the output; the command must succeed and not complain."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with within():
            output, complaint = await process.communicate(stdin.encode())
        assert process.returncode == 0, complaint.decode()
        return output.decode()

    async def row(self, *arguments: str) -> dict[str, str]:
        """Return the one row of what is printed, by column, up to the first empty cell."""
        lines = (await self("get", *arguments)).splitlines()
        header, row = (re.split(r"\s{2,}", line.strip()) for line in lines)
        return dict(zip(header, row, strict=False))


@pytest.fixture
def kubectl(api: Api, tmp_path: Path) -> Kubectl:
    folder = find_binaries()
    program = str(folder / "kubectl") if folder else shutil.which("kubectl")
    if program is None:
        pytest.skip("there is no kubectl")
    return Kubectl(program, api.kubeconfig, tmp_path / "cache")


async def test_kubectl_gets_every_kind_with_its_columns(api: Api, kubectl: Kubectl) -> None:
    labels = {"case": api.new_name()}
    ready = {"type": "Ready", "status": "True"}
    status = {"conditions": [ready], "nodeInfo": {"kubeletVersion": "v1.36.0"}}
    node = await api.new(
        NODES, metadata={"labels": labels}, status=status, spec={"unschedulable": True}
    )
    row = await kubectl.row("nodes", "-l", f"case={labels['case']}")
    assert (row["NAME"], row["STATUS"]) == (node.name, "Ready,SchedulingDisabled")
    assert row["VERSION"] == "v1.36.0"
    service = await new_balancer(api, ports=[{"port": 80}])
    spec = service.body["spec"]
    row = await kubectl.row("svc", service.name)
    assert row.pop("AGE").endswith("s")
    assert row == {
        "NAME": service.name,
        "TYPE": "LoadBalancer",
        "CLUSTER-IP": spec["clusterIP"],
        "EXTERNAL-IP": "<pending>",
        "PORT(S)": f"80:{spec['ports'][0]['nodePort']}/TCP",
    }
    volume = await new_volume(api)
    row = await kubectl.row("pv", volume.name)
    assert (row["CAPACITY"], row["RECLAIM POLICY"]) == ("1Gi", "Retain")
    lease = await api.new(LEASES, spec={"holderIdentity": "a"})
    assert (await kubectl.row("leases", lease.name))["HOLDER"] == "a"
    output = await kubectl("get", "nodes,svc,pv,leases,events", "--all-namespaces")
    assert f"node/{node.name}" in output
    assert "service/kubernetes" in output


async def test_kubectl_describes_objects_and_their_events(api: Api, kubectl: Kubectl) -> None:
    node = await api.new(NODES, spec={"providerID": "x://described"})
    about = {"kind": "Node", "name": node.name, "uid": node.name}
    assert (await api.create(EVENTS, event(api, about, message="it was seen"))).status == 201
    output = await kubectl("describe", "node", node.name)
    assert re.search(r"Taints:\s+node.kubernetes.io/not-ready:NoSchedule", output)
    assert re.search(r"ProviderID:\s+x://described", output)
    assert "it was seen" in output
    service, volume = await new_balancer(api), await new_volume(api)
    output = await kubectl("describe", "svc", service.name)
    assert re.search(rf"IP:\s+{service.body['spec']['clusterIP']}", output)
    output = await kubectl("describe", "pv", volume.name)
    assert re.search(r"Reclaim Policy:\s+Retain", output)


async def test_kubectl_applies_changes_and_deletes_a_manifest(api: Api, kubectl: Kubectl) -> None:
    name = api.new_name()

    async def apply(zone: str, port: int) -> list[str]:
        manifest = NODE.format(name=name, zone=zone, port=port)
        return (await kubectl("apply", "-f", "-", stdin=manifest)).splitlines()

    assert await apply("a", 80) == [f"{kind}/{name} created" for kind in KINDS.split()]
    assert await apply("a", 80) == [f"{kind}/{name} unchanged" for kind in KINDS.split()]
    assert await apply("b", 81) == [f"{kind}/{name} configured" for kind in KINDS.split()]
    label = "jsonpath={.metadata.labels.zone} {.spec.providerID}"
    assert await kubectl("get", "node", name, "-o", label) == f"b x://{name}"
    port = "jsonpath={.spec.ports[*].port} {.spec.ports[*].name}"
    assert await kubectl("get", "service", name, "-o", port) == "81 http"
    manifest = NODE.format(name=name, zone="b", port=81)
    output = await kubectl("delete", "-f", "-", stdin=manifest)
    assert output.count("deleted") == len(KINDS.split())
    assert (await api.get(f"{NODES}/{name}")).status == 404


async def test_kubectl_may_taint_label_and_cordon(api: Api, kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "patch", "nodes") == "yes\n"
    node = await api.new(NODES)
    await kubectl("taint", "node", node.name, "example.com/a=b:NoExecute")
    await kubectl("label", "node", node.name, "c=d")
    await kubectl("cordon", node.name)
    body = (await api.get(node.path)).body
    assert {taint["key"] for taint in body["spec"]["taints"]} >= {"example.com/a"}
    assert body["metadata"]["labels"] == {"c": "d"}
    assert body["spec"]["unschedulable"] is True
    await kubectl("taint", "node", node.name, "example.com/a-")
    await kubectl("uncordon", node.name)


async def test_kubectl_waits_until_a_finalized_object_is_gone(api: Api, kubectl: Kubectl) -> None:
    node = await api.new(NODES, metadata={"finalizers": ["example.com/hold"]})
    limit = f"--timeout={timeout():.0f}s"
    deleting = asyncio.ensure_future(kubectl("delete", "node", node.name, limit))
    async with api.watch(NODES, resourceVersion=node.version) as watch:
        assert "deletionTimestamp" in (await watch.next()).object["metadata"]
    assert not deleting.done()
    await api.merge(node.path, {"metadata": {"finalizers": None}})
    assert "deleted" in await deleting
