"""The conformance kit's way around the provider: the lab's services, as its users ask them."""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ccm.cloud.testkit.adapter import (
    CLUSTER,
    Disk,
    FaultKind,
    Machine,
    ObservedBalancer,
    ObservedRoute,
    Owner,
    Untestable,
)
from ccm.cloud.testkit.operations import CIDR
from ccm.model.cloud import AddressType
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.openstack import api
from ccm.providers.openstack.instances import OpenStackInstances
from ccm.providers.openstack.lb import waiting
from ccm.providers.openstack.lb.annotations import INTERNAL, KNOWN, PREFIX
from ccm.providers.openstack.lb.names import CLUSTER_TAG, OWNER_TAG
from ccm.providers.openstack.routes import GROUP_PREFIX
from ccm.providers.openstack.volumes import CSI_DRIVER, OpenStackVolumes
from tests.labs.openstack.lab import Failed, Lab, running_lab
from tests.providers.openstack.observed import machine_of, observed, settled
from tests.providers.patience import PatientAdapter, huge_error
from tests.support.deadlines import timeout
from tests.support.running import wait_for

BATCH, PAGE = 3, 4  # the provider's, so that few objects are several batches and pages
SPARE, RENEWED = "spare", "kit-renewed"
ABSENT = "00000000-0000-4000-8000-000000000000"
CALL_TIMEOUT = timeout(7.5)
WAIT = 180.0
FAULTS: dict[FaultKind, Json] = {
    FaultKind.DENIED: {"status": 403},
    FaultKind.THROTTLED: {"status": 429, "retry_after": 7},
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay": CALL_TIMEOUT + 1, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "body": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400},
}


class OpenStackAdapter(PatientAdapter):
    """Servers are kept from test to test, as others would take a second each to make."""

    fault_kinds = tuple(FAULTS)
    machine_marks = ("network:nodes",)
    page_size = PAGE
    max_machines = 2 * BATCH + 1
    call_timeout = CALL_TIMEOUT
    operation_timeout = timeout(60.0)

    def __init__(self) -> None:
        self._running = ExitStack()
        self.lab: Lab
        self._used: set[str] = set()
        self._foreign: list[str] = []
        self._ended: set[str] = set()  # addresses, which members keep until their Node goes
        self._file = Path(self._running.enter_context(TemporaryDirectory()), "cloud.conf")
        self.config_path = str(self._file)

    def start(self) -> None:
        self.lab = self._running.enter_context(running_lab())
        self.lab.agent = " kit$"  # others may use the lab at the same time
        self.secrets = re.findall("secret = (.*)", self.lab.config)
        OpenStackInstances.batch_size = OpenStackVolumes.batch_size = BATCH
        api.PAGE = PAGE
        if self.lab.is_split:
            waiting.USUAL, waiting.USUAL_CHANGE = {}, 0.5
        self._spares = [s for s in self._servers() if s["name"].startswith(("kit-", SPARE))]

    def stop(self) -> None:
        self._drop_renewed()
        self._running.close()

    def reset(self) -> bytes:
        self.clear_fault()
        self._clear_balancers()
        self._clear_router()
        for volume in self.lab.get("cinder", "/volumes"):
            if volume["name"] == CLUSTER:
                self.lab.delete("cinder", f"/volumes/{volume['id']}")
        for server_id in self._used:
            self._rename(server_id, SPARE)
        self._used.clear()
        while self._foreign:
            self.lab.delete("nova", f"/servers/{self._foreign.pop()}")
        subnets = self.lab.world["subnets"]  # in a network that has both families
        config = self.lab.config.replace(subnets["nodes"], subnets["dual-v4"])
        self._file.write_text(config)
        return config.encode()

    def refuse_credentials(self) -> None:
        self.lab.set_faults({"status": 401})

    def renew_credentials(self) -> None:
        self.lab.set_faults()
        self._drop_renewed()
        path, body = self._credentials_path(), {"application_credential": {"name": RENEWED}}
        made = self.lab.call("keystone", "POST", path, body)["application_credential"]
        config, before = self._file.read_text(), self.lab.world["application_credentials"]["ccm"]
        for key in ("id", "secret"):
            config = config.replace(before[key], made[key])
        self._file.write_text(config)

    def _credentials_path(self) -> str:
        return f"/users/{self.lab.user_id}/application_credentials"

    def _drop_renewed(self) -> None:
        path = self._credentials_path()
        for made in self.lab.call("keystone", "GET", path)["application_credentials"]:
            if made["name"] == RENEWED:
                self.lab.call("keystone", "DELETE", f"{path}/{made['id']}")

    def is_write(self, operation: str, budget: str) -> bool:
        return not operation.startswith(("Get", "List"))

    def snapshot(self) -> object:
        router = self._router()
        pairs = {port["id"]: port["allowed_address_pairs"] for port in self._server_ports()}
        groups = [sorted(group["addresses"]) for group in self._groups()]
        routes = sorted(router["routes"], key=str), groups, pairs
        return routes, [settled(one) for one in self._trees()], self._floating_addresses()

    def count_calls(self) -> int:
        return len(self.lab.calls())

    def inject_fault(self, kind: FaultKind) -> None:
        text = {"body": huge_error(*self.secrets)} if kind is FaultKind.HUGE else {}
        self.lab.set_faults(FAULTS[kind] | text)

    def clear_fault(self) -> None:
        self.lab.set_faults()

    # Machines

    def _servers(self) -> list[Json]:
        return list(self.lab.get("nova", "/servers/detail"))

    def _rename(self, server_id: str, name: str) -> None:
        self.lab.call("nova", "PUT", f"/servers/{server_id}", {"server": {"name": name}})

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        free = [one for one in self._spares if one["id"] not in self._used]
        if missing := len(names) - len(free):
            made = self.lab.create_servers([SPARE] * max(0, missing))
            self._spares += made
            free += made
        for name, server in zip(names, free, strict=False):
            self._used.add(server["id"])
            self._rename(server["id"], name)
        return [machine_of(name, one) for name, one in zip(names, free, strict=False)]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        """In a network that the cluster's servers are not in."""
        (made,) = self.lab.create_servers([name], "dual")
        self._foreign.append(made["id"])
        return machine_of(name, made)

    def stop_machine(self, machine: Machine) -> None:
        self.lab.act(_id(machine), "os-stop", "SHUTOFF")

    def start_machine(self, machine: Machine) -> None:
        self.lab.act(_id(machine), "os-start", "ACTIVE")

    def terminate_machine(self, machine: Machine) -> None:
        self.lab.delete("nova", f"/servers/{_id(machine)}")
        self._spares = [one for one in self._spares if one["id"] != _id(machine)]
        self._used.discard(_id(machine))
        self._ended |= {address.address for address in machine.addresses}

    def absent_provider_id(self) -> str:
        return f"openstack:///{ABSENT}"

    def provider_ids_elsewhere(self) -> Sequence[str]:
        return f"openstack:///{ABSENT}", f"openstack://elsewhere/{ABSENT}"

    # Routes

    def _router(self) -> Json:
        return dict(self.lab.get("neutron", f"/routers/{self.lab.world['router']}"))

    def _server_ports(self) -> list[Json]:
        ports = self.lab.get("neutron", "/ports")
        return [port for port in ports if port["device_owner"].startswith("compute:")]

    def _groups(self) -> list[Json]:
        return list(self.lab.get("neutron", "/address-groups"))

    def _change_router(self, body: Json) -> None:
        path = f"/routers/{self.lab.world['router']}"
        self.lab.call("neutron", "PUT", path, {"router": body})

    def _clear_router(self) -> None:
        if self._router()["routes"]:
            self._change_router({"routes": []})
        for group in self._groups():
            self.lab.delete("neutron", f"/address-groups/{group['id']}")
        for port in self._server_ports():
            if port["allowed_address_pairs"]:
                body: Json = {"port": {"allowed_address_pairs": []}}
                self.lab.call("neutron", "PUT", f"/ports/{port['id']}", body)

    def list_routes(self) -> Sequence[ObservedRoute]:
        owners = {
            fixed["ip_address"]: port["device_id"]
            for port in self.lab.get("neutron", "/ports")
            for fixed in port["fixed_ips"]
        }
        return [
            ObservedRoute(one["destination"], f"openstack:///{owners.get(one['nexthop'])}")
            for one in self._router()["routes"]
        ]

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        if owner is Owner.NOBODY and cidr == CIDR:
            raise Untestable("what leads a Node's network to it without a mark is upstream's route")
        (hop, *_) = (a.address for a in machine.addresses if a.type is AddressType.INTERNAL_IP)
        routes = [*self._router()["routes"], {"destination": cidr, "nexthop": hop}]
        self._change_router({"routes": routes})
        if owner is Owner.OTHER_CLUSTER:
            group = {"name": f"{GROUP_PREFIX}another", "addresses": [cidr]}
            self.lab.call("neutron", "POST", "/address-groups", {"address_group": group})

    # Balancers

    def _balancers(self) -> list[Json]:
        """The kit's: others may use the lab at the same time."""
        found = self.lab.get("octavia", "/lbaas/loadbalancers")
        ours = [one for one in found if f"{CLUSTER}_" in one["name"]]
        return [one for one in ours if one["provisioning_status"] != "DELETED"]

    def _clear_balancers(self) -> None:
        """All at once, as each takes a while."""
        for one in (balancers := self._balancers()):
            self._settle(one)
            path = f"/lbaas/loadbalancers/{one['id']}"
            if not self.lab.is_gone("octavia", path):
                self.lab.call("octavia", "DELETE", f"{path}?cascade=true")
        for one in balancers:
            path = f"/lbaas/loadbalancers/{one['id']}"
            is_gone = partial(self.lab.is_gone, "octavia", path)
            wait_for("the balancer is gone", is_gone, WAIT)
        for one in self._floating():
            self.lab.delete("neutron", f"/floatingips/{one['id']}")
        if self.lab.is_split:
            self._clear_vips()

    def _clear_vips(self) -> None:
        """The ports that stay behind would be all addresses of the network in the end."""
        for port in self.lab.get("neutron", "/ports?device_owner=Octavia"):
            balancer = port["device_id"].removeprefix("lb-")
            if self.lab.is_gone("octavia", f"/lbaas/loadbalancers/{balancer}"):
                self.lab.delete("neutron", f"/ports/{port['id']}")

    def _settle(self, balancer: Json) -> None:
        path = f"/lbaas/loadbalancers/{balancer['id']}"

        def is_settled() -> bool:
            try:
                status = self.lab.get("octavia", path)["provisioning_status"]
            except Failed:
                return True
            return not status.startswith("PENDING")

        wait_for("Octavia is done", is_settled, WAIT)

    def _floating(self) -> list[Json]:
        found = self.lab.get("neutron", "/floatingips")
        return [one for one in found if f"cluster {CLUSTER}" in one["description"]]

    def _floating_addresses(self) -> list[Json]:
        keys = ("id", "floating_ip_address", "port_id", "description")
        return [{key: one[key] for key in keys} for one in self._floating()]

    def _children(self, kind: str) -> list[Json]:
        return list(self.lab.get("octavia", f"/lbaas/{kind}"))

    def _trees(self) -> list[Json]:
        """The balancers with all that is below them."""
        listeners, pools, monitors = map(self._children, ("listeners", "pools", "healthmonitors"))
        by_id = {one["id"]: one for one in monitors}
        for pool in pools:
            pool["members"] = self._children(f"pools/{pool['id']}/members")
            pool["monitor"] = by_id.get(pool.get("healthmonitor_id"))
        found = {pool["id"]: pool for pool in pools}
        for listener in listeners:
            listener["pool"] = found.get(listener.get("default_pool_id"))
        return [
            {
                **one,
                "listeners": [o for o in listeners if {"id": one["id"]} in o["loadbalancers"]],
            }
            for one in self._balancers()
        ]

    def list_balancers(self) -> Sequence[ObservedBalancer]:
        owners = dict.fromkeys(self._ended, "") | {
            fixed["ip_address"]: f"openstack:///{port['device_id']}"
            for port in self._server_ports()
            for fixed in port["fixed_ips"]
        }
        return [observed(one, owners) for one in self._trees()]

    def balancer_resources(self) -> Collection[str]:
        found = [one["id"] for one in (*self._balancers(), *self._floating())]
        for listener in (o for tree in self._trees() for o in tree["listeners"]):
            found.append(listener["id"])
            if pool := listener["pool"]:
                found += [pool["id"], *(member["id"] for member in pool["members"])]
                found += [pool["monitor"]["id"]] if pool["monitor"] else []
        return found

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        tags = {
            Owner.NOBODY: [],
            Owner.OTHER_CLUSTER: [f"{CLUSTER_TAG}another", f"{OWNER_TAG}another"],
            Owner.OTHER_SERVICE: [f"{CLUSTER_TAG}{CLUSTER}", f"{OWNER_TAG}another"],
        }[owner]
        body = {
            "name": name,
            "tags": [name, *tags],
            "vip_subnet_id": self.lab.world["subnets"]["nodes"],
        }
        path = "/lbaas/loadbalancers"
        made = self.lab.call("octavia", "POST", path, {"loadbalancer": body})["loadbalancer"]
        self._settle(made)

    def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        ids = [one["id"] for one in self._balancers() if one["name"] == name]
        return [({f"{PREFIX}load-balancer-id": one}, {}) for one in ids]

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        ours = (
            {"connection-limit": "50"},
            {"proxy-protocol": "v2"},
            {"x-forwarded-for": "true"},
            {"lb-method": "LEAST_CONNECTIONS"},
            {"timeout-client-data": "60000"},
            {"enable-health-monitor": "true"},
            {"flavor-id": self.lab.world["lb_flavor"]},
        )
        named = [{PREFIX + key: value for key, value in one.items()} for one in ours]
        return [{INTERNAL: "true"}, *named]

    def annotation_keys(self) -> Collection[str]:
        return {INTERNAL, *(PREFIX + name for name in KNOWN)}

    def free_ip(self) -> str:
        network, description = self.lab.world["networks"]["public"], f"free for cluster {CLUSTER}"
        body = {"floatingip": {"floating_network_id": network, "description": description}}
        made = self.lab.call("neutron", "POST", "/floatingips", body)["floatingip"]
        return str(made["floating_ip_address"])

    # Volumes

    def create_volume(self, source: str) -> Disk:
        body = {"volume": {"name": CLUSTER, "size": 1, "availability_zone": "zone-b"}}
        made = self.lab.call("cinder", "POST", "/volumes", body)["volume"]
        path = f"/volumes/{made['id']}"
        wait_for(
            "there is a volume",
            lambda: self.lab.get("cinder", path)["status"] == "available",
        )
        return Disk(_volume_spec(source, made["id"]), ("zone-b",), "RegionOne")

    def delete_volume(self, disk: Disk) -> None:
        handle = disk.spec.get("csi", {}).get("volumeHandle") or disk.spec["cinder"]["volumeID"]
        self.lab.delete("cinder", f"/volumes/{handle}")

    def absent_volume(self, source: str) -> Json:
        return _volume_spec(source, ABSENT)


def _id(machine: Machine) -> str:
    return machine.provider_id.rpartition("/")[2]


def _volume_spec(source: str, volume_id: str) -> Json:
    if source == CSI_DRIVER:
        return {"csi": {"driver": source, "volumeHandle": volume_id}}
    return {source: {"volumeID": volume_id}}
