"""A project of its own in the lab, and what its owner makes there before there is a cluster."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.labs.openstack.lab import STATE, Json, Lab, make_project

CONTROLLERS = "openstack-cloud-controller-manager|ccm-supervisor"


class Tenant(Lab):
    """The owner of a new project."""

    def __init__(self) -> None:
        name = f"tenant-{uuid4().hex[:6]}"
        make_project(name)
        super().__init__(name, name)

    def make(self, service: str, kind: str, wanted: Json) -> Json:
        made: Json = self.call(service, "POST", f"/{kind}s", {kind: wanted})[kind]
        return made

    def make_subnet(self, name: str, network_id: str, options: Mapping[str, Any]) -> str:
        """Returns its ID."""
        wanted = {"name": name, "network_id": network_id, **options}
        return str(self.make("neutron", "subnet", wanted)["id"])

    def make_router(self, subnet_ids: Sequence[str]) -> str:
        """One to the outside, in these subnets; returns its ID."""
        outside = {"external_gateway_info": {"network_id": self.world["networks"]["public"]}}
        router = str(self.make("neutron", "router", {"name": "kube", **outside})["id"])
        for subnet in subnet_ids:
            path = f"/routers/{router}/add_router_interface"
            self.call("neutron", "PUT", path, {"subnet_id": subnet})
        return router

    def make_server(self, name: str, ports: Sequence[Json], **more: Any) -> str:
        """Returns its ID, before it runs."""
        wanted = {
            "name": name,
            "imageRef": self.world["image"],
            "flavorRef": self.world["flavors"]["m1.tiny"],
            "availability_zone": "zone-a",
            "networks": [{"port": port["id"]} for port in ports],
            **more,
        }
        return str(self.make("nova", "server", wanted)["id"])

    def conf(self, **sections: Sequence[str]) -> str:
        """A cloud.conf with these lines by section."""
        login = [
            f"auth-url = {self.world['endpoints']['keystone']}/v3",
            f"username = {self.user}",
            "password = secret",
            f"tenant-name = {self.project}",
            "domain-id = default",
            f"region = {self.world['region']}",
        ]
        parts = {"Global": login, **sections}
        lines = [line for name, some in parts.items() for line in (f"[{name}]", *some)]
        return "\n".join([*lines, ""])


class Calls:
    """The requests of controllers that the lab's services log, from now on."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}
        self._found: list[Json] = []
        self.forget()

    def forget(self) -> None:
        self.read()
        self._found = []

    def read(self) -> list[Json]:
        """All so far, in the order of their beginning."""
        for file in (STATE / "calls").glob("*.jsonl"):
            with file.open("rb") as log:
                log.seek(self._offsets.get(file, 0))
                lines = [line for line in log if line.endswith(b"\n")]
            self._offsets[file] = self._offsets.get(file, 0) + sum(map(len, lines))
            calls = map(json.loads, lines)
            self._found += [call for call in calls if re.search(CONTROLLERS, call["agent"])]
        return sorted(self._found, key=lambda call: float(call["t"]))

    def unanswered(self) -> list[str]:
        """Those that services are still at work on."""
        found = [_text_of(file) for file in (STATE / "under-way").iterdir()]
        return [text for text in found if re.search(CONTROLLERS, text)]

    def writes(self) -> list[Json]:
        return [call for call in self.read() if is_write(call)]


def _text_of(file: Path) -> str:
    """Empty when it has gone meanwhile."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def is_write(call: Json) -> bool:
    """Whether it may have changed something; a new token changes nothing."""
    return call["method"] not in ("GET", "HEAD") and call["service"] != "keystone"
