"""What the server hands out to Services: cluster addresses and node ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from ccm.sandbox.kubernetes.objects import Object

NETWORK = ipaddress.IPv4Network("10.0.0.0/16")
NODE_PORTS = range(30000, 32768)


class Exhausted(Exception):
    """Nothing is left to hand out."""


@dataclass(slots=True)
class Pool:
    """The cluster addresses and node ports that are taken."""

    addresses: set[str] = field(default_factory=set)
    node_ports: set[int] = field(default_factory=set)

    @staticmethod
    def of(services: Iterable[Object]) -> Pool:
        pool = Pool()
        for service in services:
            spec = service["spec"]
            pool.addresses.update(spec.get("clusterIPs") or ())
            for port in spec.get("ports") or ():
                pool.node_ports.add(port.get("nodePort", 0))
            pool.node_ports.add(spec.get("healthCheckNodePort", 0))
        return pool

    def take_address(self) -> str:
        first = int(NETWORK.network_address) + 1
        for number in range(first, int(NETWORK.broadcast_address)):
            address = str(ipaddress.IPv4Address(number))
            if address not in self.addresses:
                self.addresses.add(address)
                return address
        raise Exhausted("range is full")

    def take_node_port(self) -> int:
        for port in NODE_PORTS:
            if port not in self.node_ports:
                self.node_ports.add(port)
                return port
        raise Exhausted("range is full")
