"""The simulated cloud with machines, and a network that does what its routes and balancers say.

In the network of the lab's hub: `python -m tests.labs.kubelets.cloud HOST NETWORK COUNT URL-FILE`.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

from ccm.sandbox.cloud import server
from ccm.sandbox.cloud.records import Address, Machine
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.state import CloudState
from ccm.sandbox.serving import serve

PERIOD = 0.1  # seconds until the network does what the cloud says
HOOKS = {"prerouting": "dstnat", "output": "-100"}  # of nftables, and their priority


def internal_ip(machine: Machine) -> str:
    return next(one.address for one in machine.addresses if one.type == "InternalIP")


def routes(state: CloudState) -> dict[str, str]:
    """Networks, and the address of the machine that each is sent to."""
    machines = state.machines.records
    return {
        str(route.cidr): internal_ip(machines[route.machine_id])
        for route in state.routes.records.values()
        if route.machine_id in machines
    }


def rules(state: CloudState) -> str:
    """What sends packets for a balancer's address to its machines, in turn."""
    lines = []
    for balancer in state.load_balancers.records.values():
        machines = [state.machines.records.get(one) for one in balancer.backends]
        backends = [internal_ip(one) for one in machines if one and one.is_live]
        for listener in balancer.listeners if backends else ():
            targets = ", ".join(
                f"{at} : {address} . {listener.node_port}" for at, address in enumerate(backends)
            )
            to = f"numgen inc mod {len(backends)} map {{ {targets} }}"
            protocol = listener.protocol.lower()
            lines.append(f"ip daddr {balancer.ip} {protocol} dport {listener.port} dnat ip to {to}")
    chains = [
        f"chain {hook} {{ type nat hook {hook} priority {priority};\n" + "\n".join(lines) + "\n}"
        for hook, priority in HOOKS.items()
    ]
    table = "table ip balancers"
    return f"{table} {{ }}\ndelete {table}\n{table} {{\n" + "\n".join(chains) + "\n}\n"


class Network:
    """Routes and rules of this network namespace, as the cloud had them last."""

    def __init__(self) -> None:
        self._routes: dict[str, str] = {}
        self._rules = ""

    def follow(self, state: CloudState) -> None:
        """Do what the cloud says by now."""
        wanted, ruled = routes(state), rules(state)
        for cidr, address in wanted.items() - self._routes.items():
            subprocess.run(("ip", "route", "replace", cidr, "via", address), check=True)
        for cidr in self._routes.keys() - wanted.keys():
            subprocess.run(("ip", "route", "del", cidr), check=True)
        if ruled != self._rules:
            subprocess.run(("nft", "-f", "-"), input=ruled, text=True, check=True)
        self._routes, self._rules = wanted, ruled


async def follow(state: CloudState) -> None:
    network = Network()
    while True:
        network.follow(state)
        await asyncio.sleep(PERIOD)


async def main(host: str, network: str, count: int, url_file: Path) -> None:
    server.LOOPBACK = host
    cloud = CloudServer()
    for number in range(1, count + 1):
        name, address = f"vm-{number}", Address("InternalIP", f"{network}.{number}")
        zone = f"zone-{'abc'[number % 3]}"
        cloud.state.machines.add(
            Machine(name, zone=zone, addresses=(Address("Hostname", name), address))
        )
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(cloud.state))
        await serve(cloud, url_file)
        following.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
