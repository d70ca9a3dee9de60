"""A project of Compute Engine: its resources by path, its operations, and what tests put there."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

from tests.labs.gce.contract import Json
from tests.labs.gce.resources import fingerprint

PROJECT, HOST_PROJECT, REGION = "lab", "host", "europe-west1"
ZONES = tuple(f"{REGION}-{letter}" for letter in "bcd")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class Operation:
    """A change that is done at `due`; `fault` is how it fails then."""

    record: Json
    due: float
    fault: Json | None = None
    finish: Callable[[], None] | None = None

    def settle(self) -> None:
        if self.record["status"] == "DONE" or time.monotonic() < self.due:
            return
        self.record |= {"status": "DONE", "progress": 100, "endTime": now()}
        if self.fault:
            reason, said = self.fault.get("reason", "ERROR"), self.fault.get("message", "lab")
            self.record["httpErrorStatusCode"] = self.fault.get("status", 400)
            self.record["error"] = {"errors": [{"code": reason, "message": said}]}
        elif self.finish:
            self.finish()


class Project:
    """Resources by their paths from `projects/` on; members of instance groups by the group's."""

    def __init__(self, base: str) -> None:
        self.base, self.lock = base, threading.RLock()
        self.objects: dict[str, Json] = {}
        self.members: dict[str, dict[str, Json]] = {}
        self.operations: dict[str, Operation] = {}
        self.operation_delay = 0.0
        self.unreachable: set[str] = set()  # zones that lists cannot read
        self.page_size = 500  # of lists; not of those of all zones
        self._requests: dict[str, str] = {}
        self._number = 4 * 10**18
        self._next = {"INTERNAL": 1, "EXTERNAL": 1}
        for project in (PROJECT, HOST_PROJECT):
            self._seed(f"projects/{project}")

    def _seed(self, at: str) -> None:
        region = f"{at}/regions/{REGION}"
        self.put(at, "project", name=at.rpartition("/")[2], defaultNetworkTier="PREMIUM")
        zones = [f"{at}/zones/{zone}" for zone in ZONES]
        self.put(region, "region", status="UP", zones=[self.link(zone) for zone in zones])
        for zone in zones:
            self.put(zone, "zone", status="UP", region=self.link(region))
        network, subnet = f"{at}/global/networks/default", f"{region}/subnetworks/default"
        more = {"autoCreateSubnetworks": True, "subnetworks": [self.link(subnet)]}
        self.put(network, "network", **more)
        of_it = {"region": self.link(region), "network": self.link(network)}
        self.put(subnet, "subnetwork", **of_it, ipCidrRange="10.132.0.0/20")

    # Names

    def path(self, url: str) -> str:
        """A full URL, of whatever host, or a partial one, as the path from `projects/` on."""
        path = re.sub(r"^(https?://[^/]+)?/?(compute/(v1|beta|alpha)/)?", "", url)
        return path if path.startswith("projects/") else f"projects/{PROJECT}/{path}"

    def link(self, path: str) -> str:
        return self.base + path

    def put(self, path: str, kind: str, **fields: Any) -> Json:
        self._number += 1
        usual = {"kind": f"compute#{kind}", "id": str(self._number), "selfLink": self.link(path)}
        made = {"name": path.rpartition("/")[2], **usual, **fields}
        self.objects[path] = made if kind == "project" else {"creationTimestamp": now(), **made}
        return self.objects[path]

    def named(self, collection: str) -> dict[str, Json]:
        """Those of a collection of all scopes, by name."""
        found = {path: one for path, one in self.objects.items() if is_in(path, collection)}
        return {path.rpartition("/")[2]: one for path, one in found.items()}

    # For tests

    def add_instance(self, name: str, zone: str = ZONES[0], **more: Any) -> Json:
        """One that runs, with two addresses; in the next zone where the name is taken."""
        taken = [
            one
            for one in ZONES
            if f"projects/{PROJECT}/zones/{one}/instances/{name}" in self.objects
        ]
        zone = zone if zone not in taken else next(one for one in ZONES if one not in taken)
        at = f"projects/{PROJECT}/zones/{zone}"
        nat = {"type": "ONE_TO_ONE_NAT", "name": "External NAT", "natIP": self.take("EXTERNAL")}
        card = {
            "name": "nic0",
            "network": self.link(f"projects/{PROJECT}/global/networks/default"),
            "networkIP": self.take("INTERNAL"),
            "accessConfigs": [nat],
        }
        usual = {
            "status": "RUNNING",
            "zone": self.link(at),
            "machineType": self.link(f"{at}/machineTypes/e2-standard-2"),
            "canIpForward": True,
            "tags": {"items": ["node"], "fingerprint": fingerprint(name)},
            "networkInterfaces": [card],
        }
        return self.put(f"{at}/instances/{name}", "instance", **(usual | more))

    def add_disk(self, name: str, zones: Sequence[str] = ZONES[:1]) -> str:
        """A disk in a zone, or in several of the region; its path."""
        at, where = f"projects/{PROJECT}", f"regions/{REGION}"
        more: Json = {"region": self.link(f"{at}/{where}")}
        more["replicaZones"] = [self.link(f"{at}/zones/{zone}") for zone in zones]
        if len(zones) == 1:
            where = f"zones/{zones[0]}"
            more = {"zone": self.link(f"{at}/{where}")}
        self.put(f"{at}/{where}/disks/{name}", "disk", status="READY", sizeGb="10", **more)
        return f"{at}/{where}/disks/{name}"

    def take(self, kind: str) -> str:
        """A free address."""
        network = ip_network("10.132.0.0/20" if kind == "INTERNAL" else "198.18.0.0/16")
        self._next[kind] += 1
        return str(network[self._next[kind]])


def is_in(path: str, collection: str) -> bool:
    return path.split("/")[-2] == collection
