"""The conformance kit's way around the provider: the server's own state."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ccm.cloud.testkit.adapter import (
    Disk,
    FaultKind,
    Machine,
    ObservedBalancer,
    Owner,
    Untestable,
)
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck, Service
from ccm.providers.digitalocean import api
from ccm.providers.digitalocean.ids import CLUSTER_TAG, SERVICE_TAG
from ccm.providers.digitalocean.instances import DropletInstances
from ccm.providers.digitalocean.lb import load_balancers
from ccm.providers.digitalocean.lb.annotations import BALANCER_ID, DISOWN, KNOWN, PREFIX
from ccm.providers.digitalocean.lb.request import KUBE_PROXY_PORT
from ccm.providers.digitalocean.volumes import DigitalOceanVolumes
from tests.labs.digitalocean.server import REGION, TOKEN, VPC, DigitalOcean
from tests.providers.patience import PatientAdapter, huge_error

BATCH, PAGE = 3, 4  # the provider's, so that few objects are several batches and pages
RETRY = 0.01  # seconds
CLUSTER_ID = "kit"
ABSENT = "00000000-0000-4000-8000-000000000000"
FAULTS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.DENIED: {"status": 403},
    FaultKind.THROTTLED: {"status": 429, "headers": {"Retry-After": "7"}},
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay": PatientAdapter.call_timeout + 0.3, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "text": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400, "text": huge_error(TOKEN)},
}


class DigitalOceanAdapter(PatientAdapter):
    """Every request and answer has to keep to DigitalOcean's contract as well."""

    fault_kinds = tuple(FAULTS)
    machine_marks = ("tag:kit",)
    page_size = PAGE
    secrets = (TOKEN,)

    def __init__(self) -> None:
        self._running = ExitStack()
        self._token_file = Path(self._running.enter_context(TemporaryDirectory()), "token")
        self.cloud: DigitalOcean

    def start(self) -> None:
        self.cloud = self._running.enter_context(DigitalOcean().running())
        DropletInstances.batch_size = DigitalOceanVolumes.batch_size = BATCH
        api.BUSY_RETRY = load_balancers.NEW_RETRY = RETRY

    def stop(self) -> None:
        violations = self.cloud.violations
        self._running.close()
        assert not violations, violations

    def reset(self) -> bytes:
        assert not self.cloud.violations, self.cloud.violations
        self.cloud.reset()
        self.cloud.balancer_page_limit = PAGE
        self._token_file.write_text(TOKEN)
        more = "[LoadBalancer]\ntype = REGIONAL\nnetwork-stack = IPV4\n"
        config = (
            config_of(
                self.cloud, f"cluster-id = {CLUSTER_ID}", f"vpc-id = {VPC}", f"region = {REGION}"
            )
            + more
        )
        return config.replace(f"token = {TOKEN}", f"token-file = {self._token_file}").encode()

    def refuse_credentials(self) -> None:
        del self.cloud.tokens[TOKEN]

    def renew_credentials(self) -> None:
        self.cloud.tokens["renewed-token"] = "team"
        self._token_file.write_text("renewed-token")

    def is_write(self, operation: str, budget: str) -> bool:
        return not operation.startswith(("Get", "List"))

    def snapshot(self) -> object:
        return deepcopy((self.cloud.balancers, self.cloud.firewalls, self.cloud.tags))

    def count_calls(self) -> int:
        return len(self.cloud.requests)

    def inject_fault(self, kind: FaultKind) -> None:
        self.cloud.fault = FAULTS[kind]

    def clear_fault(self) -> None:
        self.cloud.fault = {}

    # Machines

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        return [machine_of(self.cloud.add_droplet(name, tags=["kit"])) for name in names]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        tags = [] if owner is Owner.NOBODY else ["another"]
        return machine_of(self.cloud.add_droplet(name, tags=tags))

    def stop_machine(self, machine: Machine) -> None:
        self.cloud.droplets[number_of(machine)]["status"] = "off"

    def start_machine(self, machine: Machine) -> None:
        self.cloud.droplets[number_of(machine)]["status"] = "active"

    def terminate_machine(self, machine: Machine) -> None:
        del self.cloud.droplets[number_of(machine)]

    def absent_provider_id(self) -> str:
        return "digitalocean://99"

    # Balancers

    def list_balancers(self) -> Sequence[ObservedBalancer]:
        return [observed(one) for one in self.cloud.balancers.values()]

    def balancer_resources(self) -> Collection[str]:
        return list(self.cloud.balancers)

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        if owner is Owner.NOBODY and service.name == "web":
            raise Untestable("a name with the Service's UID is upstream's mark")
        tags = {
            Owner.NOBODY: [],
            Owner.OTHER_CLUSTER: [f"{CLUSTER_TAG}another", SERVICE_TAG + service.uid],
            Owner.OTHER_SERVICE: [f"{CLUSTER_TAG}{CLUSTER_ID}", f"{SERVICE_TAG}another"],
        }[owner]
        self.cloud.add_balancer(name=name, tags=tags)

    def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        ids = [key for key, one in self.cloud.balancers.items() if one["name"] == name]
        return [({BALANCER_ID: key}, {}) for key in ids]

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        return [
            {PREFIX + key: value for key, value in one.items()}
            for one in (
                {"size-unit": "3"},
                {"enable-proxy-protocol": "true"},
                {"enable-backend-keepalive": "true"},
                {"http-idle-timeout-seconds": "90"},
                {"protocol": "http"},
                {"network": "INTERNAL"},
                {"allow-rules": "cidr:192.0.2.0/24"},
                {"healthcheck-healthy-threshold": "2"},
                {"name": "web"},
            )
        ]

    def annotation_keys(self) -> Collection[str]:
        return {DISOWN, *(PREFIX + name for name in KNOWN)}

    # Volumes

    def create_volume(self, source: str) -> Disk:
        volume_id = self.cloud.add_volume()
        return Disk(spec_of(source, volume_id), (), REGION)

    def delete_volume(self, disk: Disk) -> None:
        del self.cloud.volumes[disk.spec["csi"]["volumeHandle"]]

    def absent_volume(self, source: str) -> Json:
        return spec_of(source, ABSENT)


def config_of(cloud: DigitalOcean, *lines: str) -> str:
    """A `[Global]` section by which the server is reached."""
    return "\n".join(("[Global]", f"token = {TOKEN}", f"api-url = {cloud.url}", *lines, ""))


def spec_of(driver: str, handle: str) -> Json:
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def number_of(machine: Machine) -> int:
    return int(machine.provider_id.rpartition("/")[2])


def machine_of(record: Json) -> Machine:
    """What a Node is to get of a droplet."""
    kinds = {"private": AddressType.INTERNAL_IP, "public": AddressType.EXTERNAL_IP}
    addresses = [
        NodeAddress(kinds[one["type"]], one["ip_address"])
        for one in (*record["networks"]["v4"], *record["networks"]["v6"])
    ]
    host = NodeAddress(AddressType.HOSTNAME, record["name"])
    return Machine(
        node=record["name"],
        provider_id=f"digitalocean://{record['id']}",
        type=record["size_slug"],
        region=record["region"]["slug"],
        addresses=(host, *addresses),
    )


def observed(record: Json) -> ObservedBalancer:
    """What the kit wants to know of a balancer."""
    rules = record["forwarding_rules"]
    check = record.get("health_check", {"port": KUBE_PROXY_PORT})
    is_own = check["port"] != KUBE_PROXY_PORT
    families = {"IPV4": {"IPv4"}, "DUALSTACK": {"IPv4", "IPv6"}}[record["network_stack"]]
    return ObservedBalancer(
        name=record["name"],
        listeners=frozenset(
            (
                "UDP" if rule["entry_protocol"] == "udp" else "TCP",
                rule["entry_port"],
                rule["target_port"],
            )
            for rule in rules
        ),
        backends=frozenset(f"digitalocean://{one}" for one in record["droplet_ids"]),
        source_ranges=frozenset(one.removeprefix("cidr:") for one in record["firewall"]["allow"]),
        health_check=HealthCheck(check["port"], check["path"]) if is_own else None,
        families=frozenset(families),
    )
