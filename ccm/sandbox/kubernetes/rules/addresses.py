"""What the server hands out to Services: cluster addresses and node ports."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from ccm.sandbox.kubernetes.objects import Object

# The first is the family of a Service that does not say which it wants.
NETWORKS = {
    "IPv4": ipaddress.ip_network("10.96.0.0/16"),
    "IPv6": ipaddress.ip_network("fd00:10:96::/112"),
}
NODE_PORTS = range(30000, 32768)
ATTEMPTS = 100_000


class NotGiven(Exception):
    """What was asked for cannot be had; the text says why."""


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


@dataclass(slots=True)
class Pool:
    """The cluster addresses and node ports that are taken."""

    addresses: set[str] = field(default_factory=set)
    node_ports: set[int] = field(default_factory=set)

    @staticmethod
    def of(services: Iterable[Object]) -> Pool:
        """Return the pool from which these Services have taken."""
        pool = Pool()
        for service in services:
            spec = service["spec"]
            pool.addresses.update(spec.get("clusterIPs") or ())
            for port in spec.get("ports") or ():
                pool.node_ports.add(port.get("nodePort", 0))
            pool.node_ports.add(spec.get("healthCheckNodePort", 0))
        return pool

    def take_address(self, family: str) -> str:
        network = NETWORKS[family]
        for _ in range(ATTEMPTS):
            address = str(network[random.randrange(1, network.num_addresses - 1)])
            if address not in self.addresses:
                self.addresses.add(address)
                return address
        raise NotGiven("range is full")

    def claim_address(self, address: str) -> None:
        """Take a certain address."""
        if ipaddress.ip_address(address) not in NETWORKS[family_of(address)]:
            why = "the provided network does not match the current range"
            raise NotGiven(f"failed to allocate IP {address}: {why}")
        if address in self.addresses:
            raise NotGiven(f"failed to allocate IP {address}: provided IP is already allocated")
        self.addresses.add(address)

    def take_node_port(self) -> int:
        for _ in range(ATTEMPTS):
            port = random.choice(NODE_PORTS)
            if port not in self.node_ports:
                self.node_ports.add(port)
                return port
        raise NotGiven("range is full")

    def claim_node_port(self, port: int) -> None:
        """Take a certain node port."""
        if port not in NODE_PORTS:
            raise NotGiven(
                "provided port is not in the valid range. The range of valid ports is"
                f" {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            )
        if port in self.node_ports:
            raise NotGiven("provided port is already allocated")
        self.node_ports.add(port)
