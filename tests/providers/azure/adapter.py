"""The conformance kit's way around the provider: the lab, as its owner."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck, Service
from ccm.providers.azure import api
from ccm.providers.azure.instances import AzureInstances
from ccm.providers.azure.lb.annotations import KNOWN, PREFIX
from ccm.providers.azure.lb.names import CLUSTER_TAGS, SERVICE_TAGS
from ccm.providers.azure.lb.plan import FRONTENDS
from ccm.providers.azure.lb.security_group import destinations
from ccm.providers.azure.volumes import CSI_DRIVER, AzureVolumes
from tests.labs.azure.lab import (
    GROUP,
    NSG,
    OTHER_GROUP,
    REGION,
    SECRET,
    SIZE,
    SUBNET,
    SUBSCRIPTION,
    TABLE,
    Lab,
    path_of,
    running_lab,
)
from tests.providers.patience import PatientAdapter, huge_error

BATCH = 3  # the provider's, so that few objects are several batches
RETRY = 0.01  # seconds
FAULTS: dict[FaultKind, Json] = {
    FaultKind.DENIED: {"status": 403, "code": "AuthorizationFailed", "message": "no"},
    FaultKind.THROTTLED: {"status": 429, "code": "TooManyRequests", "retry_after": 7},
    FaultKind.ERROR: {"status": 500, "code": "InternalServerError", "message": "broken"},
    FaultKind.SILENT: {"delay": PatientAdapter.call_timeout + 0.3, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "body": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400, "body": huge_error(SECRET)},
}


class AzureAdapter(PatientAdapter):
    """Every request and every answer passes through Microsoft's types as well."""

    fault_kinds = tuple(FAULTS)
    machine_marks = (f"resource-group:{GROUP}",)
    secrets = (SECRET,)
    has_node_ports = False
    reads_per_batch = 3  # machines, their states and their interfaces

    def __init__(self) -> None:
        self._running = ExitStack()
        self._folder = Path(self._running.enter_context(TemporaryDirectory(prefix="ccm-azure-")))
        self.config_path = str(self._folder / "azure.json")
        self.lab: Lab

    def start(self) -> None:
        self.lab = self._running.enter_context(running_lab(self._folder))
        AzureInstances.batch_size = AzureVolumes.batch_size = BATCH
        api.BUSY_RETRY = api.RACE_RETRY = RETRY

    def stop(self) -> None:
        self._running.close()

    def reset(self) -> bytes:
        self.lab.reset()
        return self._write_config(SECRET)

    def _write_config(self, secret: str) -> bytes:
        more = {"nodeInstanceNotFoundGracePeriodInSeconds": 0, "aadClientSecret": secret}
        config = self.lab.config(**more)
        Path(self.config_path).write_text(config)
        return config.encode()

    def refuse_credentials(self) -> None:
        self.lab.settings(secret="another", revoke_tokens=True)

    def renew_credentials(self) -> None:
        self._write_config("another")

    def is_write(self, operation: str, budget: str) -> bool:
        return budget.endswith("-write")

    def snapshot(self) -> object:
        return without_etags(self.lab.state()["objects"])

    def count_calls(self) -> int:
        return len(self.lab.calls())

    def inject_fault(self, kind: FaultKind) -> None:
        self.lab.fail(".*", 1_000_000, **FAULTS[kind])

    def clear_fault(self) -> None:
        self.lab.heal()

    # Machines

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        return [self._machine(name) for name in names]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        return self._machine(name, OTHER_GROUP, "other")

    def _machine(self, name: str, group: str = GROUP, vnet: str = "vnet") -> Machine:
        taken = path_of("virtualMachines", name, group).lower() in self.lab.objects(
            "virtualMachines"
        )
        own = f"{name}-twin" if taken else name
        made = self.lab.add_machine(own, group, vnet, host=name)
        interface = self.lab.get("networkInterfaces", f"{own}-nic", group)
        (ip,) = interface["properties"]["ipConfigurations"]
        written = f"azure://{made['id']}"
        return Machine(
            node=name,
            provider_id=written,
            type=SIZE,
            zone=f"{REGION}-1",
            region=REGION,
            addresses=(
                NodeAddress(AddressType.INTERNAL_IP, ip["properties"]["privateIPAddress"]),
                NodeAddress(AddressType.HOSTNAME, name),
            ),
            aliases=(written.replace("/resourceGroups/", "/RESOURCEGROUPS/"),),
        )

    def stop_machine(self, machine: Machine) -> None:
        self.lab.act(id_of(machine), "deallocate")

    def start_machine(self, machine: Machine) -> None:
        self.lab.act(id_of(machine), "start")

    def terminate_machine(self, machine: Machine) -> None:
        self.lab.delete_machine(id_of(machine))
        self.lab.delete("networkInterfaces", f"{id_of(machine).rpartition('/')[2]}-nic")

    def absent_provider_id(self) -> str:
        return f"azure://{path_of('virtualMachines', 'never')}"

    def provider_ids_elsewhere(self) -> Sequence[str]:
        found = path_of("virtualMachines", "never"), path_of("virtualMachines", "x", "never")
        other = found[0].replace(SUBSCRIPTION, "00000000-0000-4000-8000-00000000000a")
        return [f"azure://{path}" for path in (*found, other)]

    # Routes

    def list_routes(self) -> Sequence[ObservedRoute]:
        owners: dict[str, str] = {}
        for nic in self.lab.objects("networkInterfaces").values():
            for ip in nic["properties"]["ipConfigurations"]:
                machine = nic["properties"].get("virtualMachine", {}).get("id", "")
                owners[ip["properties"]["privateIPAddress"]] = f"azure://{machine}"
        found = self.lab.get("routeTables", TABLE)["properties"].get("routes", [])
        return [
            ObservedRoute(
                one["properties"]["addressPrefix"],
                owners.get(one["properties"]["nextHopIpAddress"], ""),
            )
            for one in found
        ]

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        """By hand; or as upstream once made them for another cluster's Nodes."""
        hop = next(one.address for one in machine.addresses)
        name = {Owner.NOBODY: "by-hand", Owner.OTHER_CLUSTER: f"{CLUSTER}-other"}[owner]
        properties: dict[str, Any] = {"addressPrefix": cidr, "nextHopIpAddress": hop}
        body = {"properties": {"nextHopType": "VirtualAppliance", **properties}}
        self.lab.put(f"routeTables/{TABLE}/routes", name, body)

    # Balancers

    def _balancers(self) -> list[Json]:
        return list(self.lab.objects("loadBalancers").values())

    def list_balancers(self) -> Sequence[ObservedBalancer]:
        state = self.lab.state()
        found = list[ObservedBalancer]()
        for balancer in self._balancers():
            properties = balancer["properties"]
            names = {one["name"][:32] for one in properties.get("frontendIPConfigurations", [])}
            found += [observed(name, balancer, state) for name in sorted(names)]
        return found

    def balancer_resources(self) -> Collection[str]:
        found = [one["id"] for one in self._balancers()]
        for balancer in self._balancers():
            for kind in ("frontendIPConfigurations", "loadBalancingRules", "probes"):
                found += [one["id"] for one in balancer["properties"].get(kind, [])]
        found += self.lab.objects("publicIPAddresses")
        rules = self.lab.get("networkSecurityGroups", NSG)["properties"].get("securityRules", [])
        return [*found, *(one["name"] for one in rules)]

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        if owner is Owner.OTHER_CLUSTER and service.name == "web":
            raise Untestable("other clusters have load balancers of their own")
        if service.name == "web":
            raise Untestable("a frontend of the Service's UID is upstream's mark")
        tags = {
            Owner.NOBODY: {},
            Owner.OTHER_CLUSTER: {CLUSTER_TAGS[0]: "another", SERVICE_TAGS[0]: "default/x"},
            Owner.OTHER_SERVICE: {CLUSTER_TAGS[0]: CLUSTER, SERVICE_TAGS[0]: "default/x"},
        }[owner]
        address = {"publicIPAllocationMethod": "Static"}
        body = {"sku": {"name": "Standard"}, "properties": address, "tags": tags}
        made = self.lab.put("publicIPAddresses", f"foreign-{name}", body)
        frontend = {"name": name, "properties": {"publicIPAddress": {"id": made["id"]}}}
        balancer = {"sku": {"name": "Standard"}, "properties": {FRONTENDS: [frontend]}}
        self.lab.put(
            "loadBalancers", "another" if owner is Owner.OTHER_CLUSTER else "by-hand", balancer
        )

    def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        listed = self.lab.objects("publicIPAddresses").values()
        (made,) = (one for one in listed if name in one["name"])
        ip, found = made["properties"]["ipAddress"], list[tuple[Mapping[str, str], Json]]()
        if made.get("tags"):  # another's without any may be added: of a load balancer by hand
            found.append(({f"{PREFIX}additional-public-ips": ip}, {}))
        return [
            *found,
            ({f"{PREFIX}pip-name": made["name"]}, {}),
            ({f"{PREFIX}load-balancer-ipv4": ip}, {}),
            ({}, {"loadBalancerIP": ip}),
        ]

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        return [
            {PREFIX + key: value for key, value in one.items()}
            for one in (
                {"load-balancer-internal": "true"},
                {"load-balancer-internal": "true", "load-balancer-internal-subnet": SUBNET},
                {"dns-label-name": "kit-label"},
                {"load-balancer-tcp-idle-timeout": "10"},
                {"load-balancer-health-probe-protocol": "http"},
                {"load-balancer-health-probe-interval": "10"},
                {"load-balancer-disable-tcp-reset": "true"},
                {"disable-load-balancer-floating-ip": "true"},
                {"allowed-service-tags": "AzureCloud"},
                {"allowed-ip-ranges": "192.0.2.0/24"},
                {"pip-tags": "team=blue"},
            )
        ]

    def annotation_keys(self) -> Collection[str]:
        return {PREFIX + name for name in KNOWN}

    def free_ip(self) -> str:
        body = {
            "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static"},
        }
        made = self.lab.put("publicIPAddresses", "free", body)
        return str(made["properties"]["ipAddress"])

    # Volumes

    def create_volume(self, source: str) -> Disk:
        name = f"disk-{len(self.lab.objects('disks'))}"
        body = {"zones": ["2"], "properties": {"diskSizeGB": 1}}
        made = self.lab.put("disks", name, body)
        return Disk(spec_of(source, made["id"]), (f"{REGION}-2",), REGION)

    def delete_volume(self, disk: Disk) -> None:
        handle = disk.spec.get("csi", {}).get("volumeHandle") or disk.spec["azureDisk"]["diskURI"]
        self.lab.delete("disks", handle.rpartition("/")[2])

    def absent_volume(self, source: str) -> Json:
        return spec_of(source, path_of("disks", "never"))


def id_of(machine: Machine) -> str:
    return machine.provider_id.removeprefix("azure://")


def spec_of(source: str, disk_id: str) -> Json:
    if source == CSI_DRIVER:
        return {"csi": {"driver": source, "volumeHandle": disk_id}}
    return {"azureDisk": {"diskName": disk_id.rpartition("/")[2], "diskURI": disk_id}}


def without_etags(record: Any) -> Any:
    """What a write of the very same leaves as it was."""
    if isinstance(record, list):
        return [without_etags(one) for one in record]
    if isinstance(record, dict):
        kept = {key: one for key, one in record.items() if key != "etag" and one != []}
        return {key: without_etags(one) for key, one in kept.items()}
    return record


def observed(name: str, balancer: Json, state: Json) -> ObservedBalancer:
    """What the kit wants to know of one Service's parts."""
    properties, objects = balancer["properties"], state["objects"]
    frontends = [one for one in properties[FRONTENDS] if one["name"].startswith(name)]
    rules = [
        one for one in properties.get("loadBalancingRules", []) if one["name"].startswith(name)
    ]
    probes = {one["id"].lower(): one["properties"] for one in properties.get("probes", [])}
    pools = {one["properties"]["backendAddressPool"]["id"].lower() for one in rules}
    nics = [
        one["id"].lower().partition("/ipconfigurations/")[0]
        for pool in pools
        for one in state["members"].get(pool, [])
    ]
    machines = {objects[nic]["properties"]["virtualMachine"]["id"] for nic in nics}
    addresses, families = set[str](), set[str]()
    for one in frontends:
        public = one["properties"].get("publicIPAddress")
        record = objects[public["id"].lower()]["properties"] if public else one["properties"]
        address = record.get("ipAddress") or record["privateIPAddress"]
        addresses.add(address)
        families.add("IPv6" if ":" in address else "IPv4")
    group = objects[path_of("networkSecurityGroups", NSG).lower()]
    sources = set[str]()
    for rule in group["properties"].get("securityRules", []):
        if destinations(rule) & addresses:
            given = rule["properties"]
            listed = given.get("sourceAddressPrefixes") or [given["sourceAddressPrefix"]]
            sources |= {*listed} - {"Internet"}
    checks = [
        probes[one["properties"]["probe"]["id"].lower()]
        for one in rules
        if "probe" in one["properties"]
    ]
    http = [one for one in checks if one["protocol"] == "Http"]
    return ObservedBalancer(
        name=name,
        listeners=frozenset(
            (one["properties"]["protocol"].upper(), one["properties"]["frontendPort"], 0)
            for one in rules
        ),
        backends=frozenset(f"azure://{one}" for one in machines),
        source_ranges=frozenset(sources),
        health_check=HealthCheck(http[0]["port"], http[0]["requestPath"]) if http else None,
        has_affinity=any(one["properties"]["loadDistribution"] == "SourceIP" for one in rules),
        families=frozenset(families),
    )
