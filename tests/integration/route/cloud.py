"""A cloud's route table in memory: it holds state, obeys its rules, and fails when told to."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from ccm.errors import CloudError, Refused
from ccm.model.cloud import AddressType, NodeAddress, Route
from ccm.model.objects import Node

MACHINE = "fake://"


@dataclass(frozen=True)
class Entry:
    """A route in the cloud; `is_ours` is the mark of our cluster."""

    id: str
    cidr: str
    machine: str
    is_ours: bool = True
    addresses: tuple[NodeAddress, ...] = ()


class FakeRoutes:
    """The routes part of a provider. A network leads to one machine, whosever the route is.

    `answers` are what the next calls of an operation end with, instead of being performed; a None
    in them lets a call pass. `surprises` are calls that should never have come.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.dead: set[str] = set()  # machines that are gone: their routes are blackholes
        self.tells_addresses = False
        self.marks_routes = False  # each of our routes carries our mark
        self.is_by_network = False  # a route has its network for an id, and is deleted by it
        self.most = 1000
        self.answers: dict[str, list[Exception | None]] = {"list": [], "create": [], "delete": []}
        self.left_out: set[str] = set()  # CIDRs that lists do not show
        self.calls: Counter[str] = Counter()
        self.before_call: Callable[[], None] = lambda: None  # what the gate of a real one checks
        self.log: list[str] = []
        self.surprises: list[str] = []
        self.pause = 0  # rounds of the loop that every call takes
        self.most_busy = self._busy = 0
        self._number = 0

    @property
    def writes(self) -> int:
        return self.calls["create"] + self.calls["delete"]

    @property
    def routes(self) -> dict[str, str]:
        """CIDR → machine, of our routes."""
        return {entry.cidr: entry.machine for entry in self.entries.values() if entry.is_ours}

    def put(
        self,
        cidr: str,
        machine: str,
        is_ours: bool = True,
        addresses: tuple[NodeAddress, ...] = (),
    ) -> None:
        self._number += 1
        route_id = cidr if self.is_by_network else f"r-{self._number}"
        self.entries[route_id] = Entry(route_id, cidr, machine, is_ours, addresses)

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        names = {node.provider_id: node.name for node in nodes if node.provider_id}
        found = [
            Route(
                cidr=entry.cidr,
                node=names.get(MACHINE + entry.machine, ""),
                id=entry.id,
                is_blackhole=entry.machine in self.dead,
                addresses=entry.addresses if self.tells_addresses else None,
                is_marked=self.marks_routes,
            )
            for entry in self.entries.values()
            if entry.is_ours and entry.cidr not in self.left_out
        ]
        await self._called("list")
        return found

    async def create(self, node: Node, cidr: str) -> None:
        await self._called("create")
        machine = node.provider_id.removeprefix(MACHINE)
        for entry in self.entries.values():
            if ip_network(entry.cidr) == ip_network(cidr):
                if entry.is_ours and entry.machine == machine:
                    return
                raise Refused(f"{cidr} leads to {entry.machine}")
        if len(self.entries) >= self.most:
            raise Refused(f"{len(self.entries)} of {self.most} routes are used")
        if machine in self.dead:
            raise Refused(f"no such machine: {machine}")
        shown = tuple(
            NodeAddress(AddressType(each["type"]), each["address"]) for each in node.addresses
        )
        self.put(cidr, machine, addresses=shown)
        self.log.append(f"+ {cidr} {machine}")

    async def delete(self, route: Route) -> None:
        if not route.id:
            self.surprises.append(f"{route} was to be deleted and has never been listed")
        meant = self.entries.get(route.id)
        await self._called("delete")
        entry = self.entries.pop(route.id, None)
        if entry:
            self.log.append(f"- {entry.cidr} {entry.machine}")
        if entry is not meant or (entry and not entry.is_ours):
            self.surprises.append(f"{meant} was to be deleted, and {entry} was")

    async def _called(self, operation: str) -> None:
        if operation != "list":
            self.before_call()
        self.calls[operation] += 1
        self._busy += 1
        self.most_busy = max(self.most_busy, self._busy)
        try:
            for _ in range(self.pause):
                await asyncio.sleep(0)
        finally:
            self._busy -= 1
        answers = self.answers[operation]
        if answers and (answer := answers.pop(0)):
            raise answer


def outage(times: int = 1) -> list[Exception | None]:
    return [CloudError("500 from the cloud")] * times
