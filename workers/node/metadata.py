"""What a Node gets from its machine: labels, and addresses in the order its kubelet asks for.

Type, zone and region each have a GA key and an older beta key.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from ccm.model.cloud import AddressType, Instance, NodeAddress
from ccm.model.objects import Json, Node

Ip = IPv4Address | IPv6Address

_OCTET = re.compile("[0-9]+")
_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_PAIRS = (_TYPE, _ZONE, _REGION)
_RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")


def missing_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """What to add or change on a Node that carries `present`.

    Type, zone and region overwrite, under the GA and the beta key, unless the cloud does not say.
    A label that the cloud adds on top never overwrites, and never a reserved key.
    """
    wanted: dict[str, str] = {}
    for keys, value in zip(_PAIRS, (instance.type, instance.zone, instance.region), strict=True):
        wanted |= dict.fromkeys(keys, value) if value else {}
    for key, value in instance.labels.items():
        if not _RESERVED.search(key) and key not in present:
            wanted.setdefault(key, value)
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def followed_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """The same for a Node that was initialised before: a beta key that it lacks stays away."""
    dropped = {beta for _, beta in _PAIRS if beta not in present}
    wanted = missing_labels(instance, present)
    return {key: value for key, value in wanted.items() if key not in dropped}


def agreeing_labels(present: Mapping[str, str], beta_wins: bool) -> dict[str, str]:
    """What makes each pair agree: the GA key holds the truth, unless `beta_wins` (upstream's way).

    A missing GA key gets the beta key's value; a missing beta key stays away.
    """
    wanted: dict[str, str] = {}
    for ga, beta in _PAIRS:
        if beta in present and present.get(ga) != present[beta]:
            keep_beta = beta_wins or ga not in present
            wanted |= {ga: present[beta]} if keep_beta else {beta: present[ga]}
    return wanted


class AddressProblem(Exception):
    """The addresses of a Node cannot be decided; the text says why."""


def desired_addresses(node: Node, offered: Sequence[NodeAddress]) -> list[Json]:
    """`status.addresses` for `node`; empty when the cloud offers none, which means "leave them".

    A host name that only the Node knows is kept. Raises `AddressProblem` when the kubelet's
    `--node-ip` (annotation `alpha.kubernetes.io/provided-node-ip`) is not among the offered.
    """
    if not offered:
        return []
    addresses = list(dict.fromkeys(offered))
    if not any(address.type is AddressType.HOSTNAME for address in addresses):
        addresses += _own_host_names(node)
    if node.provided_node_ip is not None:
        addresses = prefer(addresses, node.provided_node_ip)
    return [{"type": str(address.type), "address": address.address} for address in addresses]


def _own_host_names(node: Node) -> Iterable[NodeAddress]:
    for entry in node.addresses:
        if entry.get("type") == AddressType.HOSTNAME and isinstance(entry.get("address"), str):
            yield NodeAddress(AddressType.HOSTNAME, entry["address"])


def prefer(offered: Sequence[NodeAddress], provided: str) -> list[NodeAddress]:
    """The offered addresses with the provided IPs first and alone of their type (upstream's rule).

    `provided` is one IP, or two of different families joined by a comma. IPs are compared as
    numbers; the cloud's spelling is kept.
    """
    first: list[NodeAddress] = []
    for wanted in _provided_ips(provided):
        matching = [address for address in offered if _parse(address.address) == wanted]
        if not matching:
            raise AddressProblem(
                f"failed to get node address from cloud provider that matches ip: {wanted}"
            )
        first += matching
    claimed = {address.type for address in first}
    return first + [address for address in offered if address.type not in claimed]


def _provided_ips(provided: str) -> list[Ip]:
    ips = [_parse(part) for part in provided.split(",")]
    known = [ip for ip in ips if ip is not None]
    is_pair = len(known) == 2 and known[0].version != known[1].version
    if len(known) != len(ips) or not (len(known) == 1 or is_pair):
        raise AddressProblem(f"{provided!r} is neither one IP nor one of each family")
    if is_pair and any(ip.is_unspecified for ip in known):
        raise AddressProblem(f"{provided!r} contains an unspecified IP")
    return known


def _parse(text: str) -> Ip | None:
    """An IP, or None; leading zeros in IPv4 are accepted as decimal, as kubelets write them."""
    octets = text.split(".")
    if len(octets) == 4 and all(_OCTET.fullmatch(octet) for octet in octets):
        text = ".".join(octet.lstrip("0") or "0" for octet in octets)
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip
