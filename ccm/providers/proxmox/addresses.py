"""The addresses of a Node: the kubelet's own, and those that the guest agent reports."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from ccm.cloud.newest import Newest
from ccm.errors import CloudError, NotLeading
from ccm.model.cloud import AddressType, Network, NodeAddress, read_address
from ccm.model.objects import Node, mapping, objects, text
from ccm.providers.proxmox.api import AGENT, ASK_GUEST, ProxmoxApi
from ccm.providers.proxmox.config import DEFAULT, NetworkSection
from ccm.providers.proxmox.inventory import Identity, ListedMachine

Address = IPv4Address | IPv6Address
_Key = tuple[int, str]  # VMID and UUID: a number is given again

AGENT_WAIT = 2.0  # seconds for which a batch of Nodes waits for agents that answered before
AGENT_TTL = 60.0  # seconds until one is asked again
MAX_ADDRESSES = 100  # of one machine; root in the guest can make any number
MAX_INTERFACES = 10_000  # the same
OF_NO_CARD = re.compile(
    r"lo|docker\d+|br-[0-9a-f]{12}|veth.*|cni.*|flannel.*|vxlan.*|geneve?.*|cali.*|tunl\d+|cilium.*"
    r"|lxc.*|kube-.*|nodelocaldns|antrea.*|ovn-.*|ovs-.*|weave.*|podman\d+|virbr\d+|dummy.*"
    r"|wg.*|tailscale\d+|zt.*"
)
"""Interfaces of pods, CNIs, containers and tunnels, by name."""
NO_AGENT = ("is not running", "No QEMU guest agent configured")


def addresses_of(
    node: Node, reported: Sequence[Address] | None, section: NetworkSection
) -> tuple[NodeAddress, ...]:
    """The kubelet's, then the agent's; none, which leaves a Node those that it has.

    `reported` is None while the agent was asked and has not answered yet.
    """
    own = [item for item in map(_address, (node.provided_node_ip or "").split(",")) if item]
    if reported is None and node.addresses:
        return ()
    found = [item for item in dict.fromkeys((*own, *(reported or ()))) if _is_wanted(item, section)]
    found = [item for item in found if item in own or not _is_in(item, section.excluded)]
    if not found:
        return ()
    if section.order:
        found.sort(key=lambda item: _rank(item, section))
    is_external = {item for item in found if item not in own and _is_in(item, section.external)}
    kinds = (
        AddressType.EXTERNAL_IP if item in is_external else AddressType.INTERNAL_IP
        for item in found
    )
    host = NodeAddress(AddressType.HOSTNAME, node.name)
    return (*(NodeAddress(kind, str(item)) for kind, item in zip(kinds, found, strict=True)), host)


def read_interfaces(answer: object, macs: frozenset[str]) -> list[Address]:
    """What the NICs have in the guest, IPv4 before IPv6.

    An interface with the MAC of a NIC counts, and any other but those of pods and of CNIs: a bond,
    a bridge or a passed-through NIC has a MAC that the machine's configuration does not show. An
    IPv4 address of its own beside one with a network is a virtual IP, which moves.
    """
    found = list[Address]()
    for interface in objects(mapping(answer).get("result"))[:MAX_INTERFACES]:
        is_nic = text(interface.get("hardware-address")).lower() in macs
        if not is_nic and OF_NO_CARD.fullmatch(text(interface.get("name"))):
            continue
        listed = objects(interface.get("ip-addresses"))[:MAX_ADDRESSES]
        if len(found) >= MAX_ADDRESSES:
            break
        has_network = any(
            item.get("ip-address-type") == "ipv4" and item.get("prefix") != 32 for item in listed
        )
        for entry in listed:
            address = _address(text(entry.get("ip-address")))
            is_virtual = has_network and entry.get("prefix") == 32
            if address and not (is_virtual and address.version == 4):
                found.append(address)
    return sorted(dict.fromkeys(found[:MAX_ADDRESSES]), key=lambda item: item.version)


@dataclass(slots=True)
class _ReportedAddresses:
    """What an agent said last, and when it was asked."""

    addresses: list[Address] | None = None
    asked_at: float = float("-inf")
    has_failed: bool = False


class GuestAgents:
    """Asks the agents of one cluster, apart from all else: one that hangs takes seconds.

    What an agent said counts until it says something else.
    """

    def __init__(self, api: ProxmoxApi, section: NetworkSection) -> None:
        self._api, self.is_asked = api, section.mode != DEFAULT
        self._reported = Newest[_Key, _ReportedAddresses]()
        self._under_way: dict[_Key, asyncio.Task[None]] = {}

    def reported(
        self, machine: ListedMachine, identity: Identity | None
    ) -> Sequence[Address] | None:
        """What the agent reports; None when that is unknown yet."""
        if not self.is_asked:
            return ()
        known = identity and self._reported.get((machine.vmid, identity.uuid))
        return known.addresses if known else None

    async def ask(self, machines: Sequence[tuple[ListedMachine, Identity]]) -> None:
        """Ask those that were not asked lately; waits a while for all but those that failed."""
        awaited = list[asyncio.Task[None]]()
        for machine, identity in machines if self.is_asked else ():
            key = machine.vmid, identity.uuid
            reported = self._reported.get(key) or _ReportedAddresses()
            self._reported[key] = reported
            if key in self._under_way or time.monotonic() < reported.asked_at + AGENT_TTL:
                continue
            reported.asked_at = time.monotonic()
            task = asyncio.create_task(self._ask(machine, identity, reported))
            self._under_way[key] = task
            if not reported.has_failed:
                awaited.append(task)
        if awaited:
            await asyncio.wait(awaited, timeout=AGENT_WAIT)

    async def _ask(
        self, machine: ListedMachine, identity: Identity, reported: _ReportedAddresses
    ) -> None:
        try:
            path = f"{machine.path}/agent/network-get-interfaces"
            answer = await self._api.get(ASK_GUEST, path, AGENT)
            reported.addresses, reported.has_failed = read_interfaces(answer, identity.macs), False
        except (CloudError, NotLeading) as error:
            reported.has_failed = True
            if any(words in str(error) for words in NO_AGENT) and reported.addresses is None:
                reported.addresses = []
        finally:
            del self._under_way[machine.vmid, identity.uuid]

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _address(value: str) -> Address | None:
    """One that others may reach."""
    found = read_address(value.strip())
    if found is None or found.is_loopback or found.is_link_local or found.is_unspecified:
        return None
    return found


def _is_wanted(address: Address, section: NetworkSection) -> bool:
    return section.has_ipv6 or address.version == 4


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _rank(address: Address, section: NetworkSection) -> int:
    """The place in `ip_sort_order` of the first network that has it; the others come last."""
    places = [at for at, network in enumerate(section.order) if address in network]
    return places[0] if places else len(section.order)
