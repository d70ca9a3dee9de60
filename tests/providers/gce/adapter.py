"""The conformance kit's way around the provider: the server's own state."""

import json
import os
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
    ObservedRoute,
    Owner,
)
from ccm.cloud.testkit.harness import uid_of
from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json
from ccm.model.service import HealthCheck, Service
from ccm.providers.gce import api
from ccm.providers.gce.credentials import KEY_FILE
from ccm.providers.gce.ids import last_part
from ccm.providers.gce.instances import GceInstances
from ccm.providers.gce.lb import load_balancers
from ccm.providers.gce.lb.names import CLUSTER_KEY, SERVICE_KEY, UID_KEY
from ccm.providers.gce.lb.request import GLOBAL_ACCESS, KNOWN, TIER, TYPE
from ccm.providers.gce.routes import DESCRIPTION
from ccm.providers.gce.volumes import CSI_DRIVER, LEGACY_SOURCE, GceVolumes
from tests.labs.gce.cloud import Cloud
from tests.labs.gce.project import PROJECT, REGION, ZONES
from tests.labs.gce.server import Gce
from tests.providers.patience import PatientAdapter, huge_error

BATCH, PAGE = 3, 4  # the provider's, so that few objects are several batches and pages
PARTS = (
    *("forwardingRules", "targetPools", "addresses", "firewalls", "httpHealthChecks"),
    *("healthChecks", "backendServices", "instanceGroups"),
)
NETWORK = f"projects/{PROJECT}/global/networks/default"
FAULTS: dict[FaultKind, dict[str, Any]] = {
    FaultKind.DENIED: {"status": 403, "reason": "forbidden"},
    FaultKind.THROTTLED: {
        "status": 403,
        "reason": "rateLimitExceeded",
        "headers": {"Retry-After": "7"},
    },
    FaultKind.ERROR: {"status": 500},
    FaultKind.SILENT: {"delay": PatientAdapter.call_timeout + 0.3, "status": 503},
    FaultKind.GARBAGE: {"status": 200, "text": "<html>It works!</html>"},
    FaultKind.HUGE: {"status": 400, "text": huge_error()},
}


class GceAdapter(PatientAdapter):
    """Every request and answer has to keep to Google's contract as well."""

    fault_kinds = tuple(FAULTS)
    machine_marks = ("tag:node",)
    page_size = PAGE
    has_node_ports = False

    def __init__(self) -> None:
        self._running = ExitStack()
        self.gce: Gce
        self._key_file: Path

    def start(self) -> None:
        self.gce = self._running.enter_context(Gce().running())
        self._key_file = Path(self._running.enter_context(TemporaryDirectory()), "key.json")
        os.environ[KEY_FILE] = str(self._key_file)
        load_balancers.GATHER = 0.0
        GceInstances.batch_size = GceVolumes.batch_size = BATCH

    def stop(self) -> None:
        violations = self.gce.violations
        self._running.close()
        assert not violations, violations

    def reset(self) -> bytes:
        assert not self.gce.violations, self.gce.violations
        self.gce.reset()
        self.gce.cloud.page_size = PAGE
        self._key_file.write_text(json.dumps(self.gce.account()))
        return config_of(self.gce, "token-url = nil", "token-body = ").encode()

    def refuse_credentials(self) -> None:
        self.gce.tokens.clear()
        said = "Invalid JWT Signature."
        self.gce.account_error = {"error": "invalid_grant", "error_description": said}

    def renew_credentials(self) -> None:
        self.gce.account_error = {}
        self._key_file.write_text(json.dumps(self.gce.account(private_key_id="renewed")))

    def is_write(self, operation: str, budget: str) -> bool:
        return budget == api.WRITE

    def snapshot(self) -> object:
        return deepcopy((self.gce.cloud.objects, self.gce.cloud.members))

    def count_calls(self) -> int:
        return len(self.gce.calls) + len(self.gce.token_requests)

    def inject_fault(self, kind: FaultKind) -> None:
        self.gce.is_down = FAULTS[kind]

    def clear_fault(self) -> None:
        self.gce.is_down = {}

    # Machines

    def create_machines(self, names: Sequence[str]) -> Sequence[Machine]:
        zones = [ZONES[number % len(ZONES)] for number in range(len(names))]
        add = self.gce.cloud.add_instance
        return [machine_of(add(name, zone)) for name, zone in zip(names, zones, strict=True)]

    def create_foreign_machine(self, name: str, owner: Owner) -> Machine:
        tags = [] if owner is Owner.NOBODY else ["another"]
        return machine_of(self.gce.cloud.add_instance(name, tags={"items": tags}))

    def stop_machine(self, machine: Machine) -> None:
        self._record(machine)["status"] = "TERMINATED"

    def start_machine(self, machine: Machine) -> None:
        self._record(machine)["status"] = "RUNNING"

    def terminate_machine(self, machine: Machine) -> None:
        del self.gce.cloud.objects[path_of(machine)]

    def absent_provider_id(self) -> str:
        return f"gce://{PROJECT}/{ZONES[0]}/absent"

    def provider_ids_elsewhere(self) -> Sequence[str]:
        return f"gce://other/{ZONES[0]}/odd", f"gce://{PROJECT}/{REGION}-zz/odd"

    def _record(self, machine: Machine) -> Json:
        return self.gce.cloud.objects[path_of(machine)]

    # Balancers

    def list_balancers(self) -> Sequence[ObservedBalancer]:
        return [
            observed(self.gce.cloud, one)
            for one in self.gce.cloud.named("forwardingRules").values()
        ]

    def balancer_resources(self) -> Collection[str]:
        return [path for path in self.gce.cloud.objects if path.split("/")[-2] in PARTS]

    def create_foreign_balancer(self, name: str, service: Service, owner: Owner) -> None:
        own = {SERVICE_KEY: service.key, UID_KEY: service.uid}
        said = {
            Owner.NOBODY: {},
            Owner.OTHER_CLUSTER: own | {CLUSTER_KEY: "another"},
            Owner.OTHER_SERVICE: {SERVICE_KEY: "default/other"},
        }[owner]
        self.add_rule(name, json.dumps(said))

    def references_to(self, name: str) -> Sequence[tuple[Mapping[str, str], Json]]:
        ip = self.gce.cloud.named("forwardingRules")[name]["IPAddress"]
        return [(annotations, {"loadBalancerIP": ip}) for annotations in ({}, {TYPE: "Internal"})]

    def add_rule(self, name: str, description: str) -> Json:
        """A forwarding rule to a pool, both of this name."""
        at, cloud = f"projects/{PROJECT}/regions/{REGION}", self.gce.cloud
        pool = cloud.put(f"{at}/targetPools/{name}", "targetPool", description=description)
        return cloud.put(
            f"{at}/forwardingRules/{name}",
            "forwardingRule",
            description=description,
            target=pool["selfLink"],
            IPAddress=cloud.take("EXTERNAL"),
            IPProtocol="TCP",
            portRange="80-80",
            loadBalancingScheme="EXTERNAL",
            networkTier="PREMIUM",
        )

    def annotation_sets(self) -> Sequence[Mapping[str, str]]:
        internal = {TYPE: "Internal"}
        return [internal, {TIER: "Standard"}, {**internal, GLOBAL_ACCESS: "true"}]

    def annotation_keys(self) -> Collection[str]:
        return KNOWN

    def free_ip(self) -> str:
        cloud, at = self.gce.cloud, f"projects/{PROJECT}/regions/{REGION}/addresses"
        ip, more = cloud.take("EXTERNAL"), {"networkTier": "PREMIUM", "status": "RESERVED"}
        cloud.put(f"{at}/kept", "address", address=ip, addressType="EXTERNAL", **more)
        return ip

    # Routes

    def list_routes(self) -> Sequence[ObservedRoute]:
        return [
            ObservedRoute(one["destRange"], provider_id_of(one["nextHopInstance"]))
            for one in self.gce.cloud.named("routes").values()
        ]

    def create_foreign_route(self, cidr: str, machine: Machine, owner: Owner) -> None:
        uid = uid_of("another")
        name = f"another-{uid}" if owner is Owner.OTHER_CLUSTER else "by-hand"
        self.add_route(name, cidr, machine, DESCRIPTION if "-" in uid and name != "by-hand" else "")

    def add_route(self, name: str, cidr: str, machine: Machine, description: str) -> None:
        cloud = self.gce.cloud
        cloud.put(
            f"projects/{PROJECT}/global/routes/{name}",
            "route",
            destRange=cidr,
            nextHopInstance=cloud.link(path_of(machine)),
            network=cloud.link(NETWORK),
            description=description,
            priority=1000,
        )

    # Volumes

    def create_volume(self, source: str) -> Disk:
        path = self.gce.cloud.add_disk(f"disk-{len(self.gce.cloud.objects)}")
        return Disk(spec_of(source, path), ZONES[:1], REGION)

    def delete_volume(self, disk: Disk) -> None:
        handle = disk.spec.get("csi", {}).get("volumeHandle")
        name = last_part(handle) if handle else disk.spec[LEGACY_SOURCE]["pdName"]
        del self.gce.cloud.objects[f"projects/{PROJECT}/zones/{ZONES[0]}/disks/{name}"]

    def absent_volume(self, source: str) -> Json:
        return spec_of(source, f"projects/{PROJECT}/zones/{ZONES[0]}/disks/absent")


def observed(cloud: Cloud, rule: Json) -> ObservedBalancer:
    """What the kit wants to know of a load balancer; its firewall says the ports."""
    firewalls, name = cloud.named("firewalls"), rule["name"]
    (allowed,) = firewalls.get(f"k8s-fw-{name}", {}).get(
        "allowed", [{"IPProtocol": "", "ports": []}]
    )
    backend = cloud.objects[cloud.path(rule.get("target") or rule["backendService"])]
    groups = [cloud.path(one["group"]) for one in backend.get("backends", ())]
    instances = [
        *backend.get("instances", ()),
        *(url for one in groups for url in cloud.members[one]),
    ]
    (url,) = backend.get("healthChecks") or [""]
    check = cloud.objects.get(cloud.path(url), {})
    where = check.get("httpHealthCheck", check)
    ranges = set(firewalls.get(f"k8s-fw-{name}", {}).get("sourceRanges", ())) - {"0.0.0.0/0"}
    return ObservedBalancer(
        name=name,
        listeners=frozenset(
            (allowed["IPProtocol"].upper(), number, 0)
            for ports in allowed["ports"]
            for number in range(int(ports.split("-")[0]), int(ports.split("-")[-1]) + 1)
        ),
        backends=frozenset(provider_id_of(one) for one in instances),
        source_ranges=frozenset(ranges),
        health_check=HealthCheck(where["port"], where["requestPath"])
        if check.get("name") == name
        else None,
        has_affinity=backend.get("sessionAffinity", "NONE") != "NONE",
    )


def config_of(gce: Gce, *lines: str) -> str:
    """A `[global]` section by which the server is reached."""
    usual = {
        "project-id": PROJECT,
        "local-zone": ZONES[0],
        "network-name": "default",
        "node-tags": "node",
        "api-endpoint": f"{gce.url}/compute/v1/",
        "token-url": f"{gce.url}/token",
        "token-body": "{}",
    }
    given = {line.partition(" = ")[0] for line in lines}
    kept = [f"{key} = {value}" for key, value in usual.items() if key not in given]
    return "\n".join(("[global]", *kept, *(line for line in lines if " = " in line), ""))


def spec_of(source: str, path: str) -> Json:
    if source == LEGACY_SOURCE:
        return {LEGACY_SOURCE: {"pdName": last_part(path)}}
    return {"csi": {"driver": CSI_DRIVER, "volumeHandle": path}}


def path_of(machine: Machine) -> str:
    project, zone, name = machine.provider_id.removeprefix("gce://").split("/")
    return f"projects/{project}/zones/{zone}/instances/{name}"


def provider_id_of(url: str) -> str:
    _, _, path = url.partition("projects/")
    project, _, zone, _, name = path.split("/")
    return f"gce://{project}/{zone}/{name}"


def machine_of(record: Json) -> Machine:
    """What a Node is to get of an instance with one interface."""
    (card,) = record["networkInterfaces"]
    external = [one["natIP"] for one in card["accessConfigs"]]
    kinds = [(AddressType.INTERNAL_IP, card["networkIP"])]
    kinds += [(AddressType.EXTERNAL_IP, one) for one in external]
    return Machine(
        node=record["name"],
        provider_id=provider_id_of(record["selfLink"]),
        type="e2-standard-2",
        zone=last_part(record["zone"]),
        region=REGION,
        addresses=tuple(NodeAddress(*one) for one in kinds),
    )
