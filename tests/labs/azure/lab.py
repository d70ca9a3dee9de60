"""The lab from Python: a server for each that asks, resources past the product, and faults."""

import http.client
import json
import os
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.deadlines import Deadline, timeout
from tests.support.kube.build import AZURE_LABS, build_binaries, find_binaries

MISSING = "the lab of Azure is not built: make lab-azure"
START_LIMIT = 30.0  # seconds at rest
SUBSCRIPTION = "11111111-2222-4333-8444-555555555555"
TENANT, GROUP, OTHER_GROUP, REGION = "tenant", "lab", "other", "westeurope"
VNET, SUBNET, NSG, TABLE = "vnet", "nodes", "nsg", "rt"
SECRET = "secret"
SIZE = "Standard_D2s_v5"
COMPUTE_VERSION, NETWORK_VERSION = "2025-04-01", "2025-05-01"

Json = dict[str, Any]


class Failed(Exception):
    """Resource Manager answered with an error."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status} {body}")
        self.status = status


def path_of(kind: str, name: str = "", group: str = GROUP) -> str:
    """The ID of a resource, or of a list; `kind` is as in `loadBalancers`."""
    is_compute = kind.split("/")[0] in ("virtualMachines", "virtualMachineScaleSets", "disks")
    provider = "Microsoft.Compute" if is_compute else "Microsoft.Network"
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/{provider}/{kind}"
    return f"{path}/{name}" if name else path


class Lab:
    """One cloud, as its owner sees it. `ca_file` is its certificate."""

    def __init__(self, url: str, ca_file: str) -> None:
        self.url, self.ca_file = url, ca_file
        self._context = ssl.create_default_context(cafile=ca_file)
        self._lock = threading.Lock()
        self._connection: http.client.HTTPSConnection | None = None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers; raises `Failed`."""
        with self._lock:  # tests may ask in threads
            return self._call(method, path, body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        for connection in (self._connection, None):
            used = connection or http.client.HTTPSConnection(
                urlsplit(self.url).netloc, timeout=timeout(), context=self._context
            )
            try:
                used.request(
                    method,
                    path,
                    None if body is None else json.dumps(body),
                    {"Authorization": "Bearer lab-token", "User-Agent": "owner"},
                )
                answer = used.getresponse()
                content = answer.read()
            except (http.client.HTTPException, OSError):
                used.close()
                if connection is None:
                    raise
                continue
            self._connection = used
            break
        found = json.loads(content) if content else None
        if answer.status >= 400:
            raise Failed(answer.status, found)
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.close()

    # Resources

    def put(self, kind: str, name: str, body: Json, group: str = GROUP) -> Json:
        path = path_of(kind, name, group)
        body = body if "/" in kind else {"location": REGION, **body}
        return dict(self.call("PUT", f"{path}?api-version={NETWORK_VERSION}", body))

    def get(self, kind: str, name: str, group: str = GROUP) -> Json:
        path = path_of(kind, name, group)
        return dict(self.call("GET", f"{path}?api-version={NETWORK_VERSION}"))

    def delete(self, kind: str, name: str, group: str = GROUP) -> None:
        self.call("DELETE", f"{path_of(kind, name, group)}?api-version={NETWORK_VERSION}")

    def act(self, machine_id: str, verb: str) -> None:
        """`start`, `powerOff` or `deallocate`."""
        self.call("POST", f"{machine_id}/{verb}?api-version={COMPUTE_VERSION}")

    def merge(self, resource_id: str, **record: Any) -> None:
        """Into a record as it is stored, past all rules; None takes a field away."""
        self.call("POST", "/lab/merge", {"id": resource_id, "record": record})

    def add_machine(
        self, name: str, group: str = GROUP, vnet: str = VNET, host: str = "", **more: Any
    ) -> Json:
        """A machine that runs, with one interface; `host` is what its host is called."""
        subnet = {"id": f"{path_of('virtualNetworks', vnet)}/subnets/{SUBNET}"}
        properties = {"primary": True, "subnet": subnet, **more.pop("ip", {})}
        nic = {"properties": {"ipConfigurations": [{"name": "ip", "properties": properties}]}}
        interface = self.put("networkInterfaces", f"{name}-nic", nic, group)
        profile = {"networkInterfaces": [{"id": interface["id"], "properties": {"primary": True}}]}
        body = {
            "zones": ["1"],
            **more,
            "properties": {
                "hardwareProfile": {"vmSize": SIZE},
                "osProfile": {"computerName": host or name},
                "networkProfile": profile,
            },
        }
        return self.put("virtualMachines", name, body, group)

    def delete_machine(self, machine_id: str) -> None:
        self.call("DELETE", f"{machine_id}?api-version={COMPUTE_VERSION}")

    def add_scale_set(self, name: str, capacity: int, group: str = GROUP, **more: Any) -> Json:
        """A uniform one, whose hosts are called `<name>000000` and so on."""
        subnet = {"id": f"{path_of('virtualNetworks', VNET)}/subnets/{SUBNET}"}
        ip = {"name": "ip", "properties": {"primary": True, "subnet": subnet}}
        nic = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [ip]}}
        profile = {
            "osProfile": {"computerNamePrefix": name},
            "networkProfile": {"networkInterfaceConfigurations": [nic]},
        }
        body = {
            "sku": {"name": SIZE, "capacity": capacity},
            **more,
            "properties": {"virtualMachineProfile": profile},
        }
        return self.put("virtualMachineScaleSets", name, body, group)

    def objects(self, kind: str) -> dict[str, Json]:
        """All resources of a kind as they are stored, by ID in lower case."""
        stored = self.state()["objects"]
        part = f"/{kind.lower()}/"
        return {key: one for key, one in stored.items() if part in key and key.count("/") == 8}

    # Steering

    def state(self) -> Json:
        return dict(self.call("GET", "/lab/state"))

    def settings(self, **settings: Any) -> None:
        self.call("POST", "/lab/settings", settings)

    def fail(self, match: str, times: int = 1, **fault: Any) -> None:
        """What becomes of calls whose method and path match; see README.md."""
        self.call("POST", "/lab/faults", {"match": match, "times": times, **fault})

    def heal(self) -> None:
        self.call("DELETE", "/lab/faults")

    def calls(self) -> list[Json]:
        """All but the owner's, since the last `forget_calls`."""
        return [one for one in self.call("GET", "/lab/log") if one["agent"] != "owner"]

    def counted(self) -> Counter[str]:
        """The same as `GET loadBalancers` and so on."""
        return Counter(f"{one['method']} {_kind_of(one['path'])}" for one in self.calls())

    def writes(self) -> list[str]:
        methods = ("PUT", "DELETE", "PATCH")
        calls = [one for one in self.calls() if one["method"] in methods]
        return [f"{one['method']} {one['path'].partition('/providers/')[2]}" for one in calls]

    def forget_calls(self) -> None:
        self.call("DELETE", "/lab/log")

    def reset(self) -> None:
        """Two groups, networks, a security group and a route table; no machines and no faults."""
        assert not self.state()["bad_answers"], self.state()["bad_answers"]
        self.call("POST", "/lab/wipe", {})
        for group in (GROUP, OTHER_GROUP):
            path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}?api-version=2024-11-01"
            self.call("PUT", path, {"location": REGION})
        for vnet, network in ((VNET, 224), ("other", 225)):
            subnet = {
                "name": SUBNET,
                "properties": {"addressPrefix": f"10.{network}.0.0/16"},
            }
            space = {"addressPrefixes": [f"10.{network}.0.0/16"]}
            body = {"properties": {"addressSpace": space, "subnets": [subnet]}}
            self.put("virtualNetworks", vnet, body)
        self.put("networkSecurityGroups", NSG, {"properties": {"securityRules": []}})
        self.put("routeTables", TABLE, {"properties": {"routes": []}})
        self.forget_calls()

    def config(self, **more: Any) -> str:
        """An azure.json for it; what is None is left out."""
        keys = {
            "cloud": "AzureStackCloud",
            "resourceManagerEndpoint": self.url,
            "caFile": self.ca_file,
            "tenantId": TENANT,
            "subscriptionId": SUBSCRIPTION,
            "aadClientId": "id",
            "aadClientSecret": SECRET,
            "resourceGroup": GROUP,
            "location": REGION,
            "vnetName": VNET,
            "subnetName": SUBNET,
            "securityGroupName": NSG,
            "routeTableName": TABLE,
            "vmType": "standard",
        } | more
        return json.dumps({key: value for key, value in keys.items() if value is not None})


def _kind_of(path: str) -> str:
    _, is_resource, rest = path.partition("/providers/")
    return rest.split("/")[1] if is_resource and "/" in rest else path.strip("/").split("/")[0]


def is_built() -> bool:
    """Whether a start would compile nothing; in CI it is built first."""
    if "CI" in os.environ:
        build_binaries(AZURE_LABS)
    return find_binaries(AZURE_LABS) is not None


@contextmanager
def running_lab(folder: Path, *flags: str) -> Iterator[Lab]:
    """A server of its own, whose certificate and log are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    binaries = find_binaries(AZURE_LABS)
    assert binaries, MISSING
    command = [str(binaries / "azure-lab"), "--dir", str(folder), *flags]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as run,
    ):
        try:
            lab = Lab(_read_url(folder, run), str(folder / "ca.pem"))
            lab.reset()
            yield lab
            lab.close()
        finally:
            run.terminate()
            run.wait(timeout())


def _read_url(folder: Path, run: "subprocess.Popen[bytes]") -> str:
    deadline, file = Deadline(START_LIMIT), folder / "url"
    while not (file.exists() and file.read_text().endswith("\n")):
        assert run.poll() is None, (folder / "log").read_text()
        assert not deadline.has_passed(), "the lab does not start"
        time.sleep(0.02)
    return file.read_text().strip()
