"""Which of a machine's addresses are its Node's, by upstream's rules and in an order of its own."""

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any

import yaml

from ccm.cloud.lookup import MAX_PARTS, NOT_UNDERSTOOD
from ccm.cloud.newest import Newest
from ccm.model.cloud import AddressType, NodeAddress, read_address
from ccm.model.objects import mapping, text
from ccm.providers.vsphere.config import IPV4, AddressRules, VsphereConfig
from ccm.providers.vsphere.inventory import MAX_METADATA, Nic

Address = IPv4Address | IPv6Address

NO_CARD = -1  # the `device` of what is no card of the machine: bridges of CNIs, tunnels
MAX_ADDRESSES = 256  # of one machine; root in the guest can make any number
MAX_BRACKETS = 200  # in it
MAX_TOKENS = 1000  # of its YAML: each takes 50 us
MAX_STATIC = 64  # addresses that it gives a machine
MAX_REMEMBERED = 4096  # machines whose metadata is not read again while it is the same
REMEMBERED = Newest[bytes, tuple[IPv4Address | IPv6Address, ...]](MAX_REMEMBERED)
"""By the digest of the metadata, of which a guest may write kilobytes each time."""


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """An address, and the port group of the card that it is on."""

    address: Address
    network: str


class NoAddress(Exception):
    """The machine reports none that its Node may have; the text says why."""


def addresses_of(
    node: str,
    nics: Sequence[Nic],
    metadata: tuple[str, str],
    config: VsphereConfig,
    families: Sequence[str],
) -> tuple[NodeAddress, ...]:
    """The Node's name, then one internal and one external address of each family.

    Raises `NoAddress` where a family has none.
    """
    usable = sorted_by_metadata(usable_addresses(nics), metadata)
    if not usable:
        raise NoAddress("VMware Tools report no reachable address")
    found = [NodeAddress(AddressType.HOSTNAME, node)]
    for family in families:
        version = 4 if family == IPV4 else 6
        of_family = [item for item in usable if item.address.version == version]
        if not of_family:
            raise NoAddress(f"it has no {family} address")
        internal, external = _choose(of_family, config.internal, config.external)
        if internal is None and external is None:
            raise NoAddress(f"the configuration excludes all its {family} addresses")
        for kind, item in (
            (AddressType.INTERNAL_IP, internal),
            (AddressType.EXTERNAL_IP, external),
        ):
            if item is not None:
                found.append(NodeAddress(kind, str(item.address)))
    return tuple(found)


def usable_addresses(nics: Iterable[Nic]) -> list[GuestAddress]:
    """Those of the machine's own cards that others can reach, in the order of the cards."""
    found = list[GuestAddress]()
    cards = (nic for nic in nics if nic.device != NO_CARD)
    listed = ((nic.network, written) for nic in cards for written in nic.addresses)
    for network, written in islice(listed, MAX_PARTS):
        address = read_address(written)
        if address and not (
            address.is_loopback
            or address.is_link_local
            or address.is_unspecified
            or address.is_multicast
        ):
            found.append(GuestAddress(address, network))
    return found[:MAX_ADDRESSES]


def _choose(
    found: Sequence[GuestAddress], internal: AddressRules, external: AddressRules
) -> tuple[GuestAddress | None, GuestAddress | None]:
    """By network, else by the name of the port group; the first for both where no rule fits."""
    allowed = [_not_excluded(found, rules) for rules in (internal, external)]
    chosen = [
        _by_network(some, rules) or _by_name(some, rules)
        for some, rules in zip(allowed, (internal, external), strict=True)
    ]
    if not any(chosen):
        chosen = [some[0] if some else None for some in allowed]
    return chosen[0], chosen[1]


def _not_excluded(found: Sequence[GuestAddress], rules: AddressRules) -> list[GuestAddress]:
    return [item for item in found if not any(item.address in net for net in rules.excluded)]


def _by_network(found: Sequence[GuestAddress], rules: AddressRules) -> GuestAddress | None:
    matches = (item for network in rules.networks for item in found if item.address in network)
    return next(matches, None)


def _by_name(found: Sequence[GuestAddress], rules: AddressRules) -> GuestAddress | None:
    wanted = rules.network_name.lower()
    return next((item for item in found if wanted and item.network.lower() == wanted), None)


def sorted_by_metadata(
    found: Sequence[GuestAddress], metadata: tuple[str, str]
) -> list[GuestAddress]:
    """Those first that `guestinfo.metadata` gives the machine, in its order.

    So an address that moves, as that of kube-vip, is not taken for the machine's. Metadata that is
    not understood orders nothing: it is the guest's own.
    """
    text, encoding = metadata
    static = static_addresses(text, encoding) if len(text) <= MAX_METADATA else ()
    places = {address: at for at, address in reversed(list(enumerate(static)))}
    return sorted(found, key=lambda item: places.get(item.address, len(static)))


def static_addresses(metadata: str, encoding: str) -> tuple[Address, ...]:
    """The addresses of the ethernets in cloud-init's metadata, as they stand in it; none if odd."""
    if not metadata or encoding != "base64":
        return ()
    key = hashlib.sha256(metadata.encode()).digest()
    if key not in REMEMBERED:
        REMEMBERED[key] = _static_addresses(metadata)
    return REMEMBERED[key]


def _static_addresses(metadata: str) -> tuple[Address, ...]:
    try:
        found = _addresses(_network(mapping(_load(base64.b64decode(metadata)))))
        return tuple(islice(found, MAX_STATIC))
    except (*NOT_UNDERSTOOD, yaml.YAMLError, zlib.error):
        return ()


def _network(document: Mapping[str, Any]) -> object:
    """Its `network`, which may be packed once more."""
    network: object = document.get("network")
    match document.get("network.encoding"):
        case "base64" | "b64":
            return _load(base64.b64decode(text(network)))
        case "gzip+base64" | "gz+b64":
            packed = base64.b64decode(text(network))
            return _load(zlib.decompressobj(wbits=31).decompress(packed, MAX_METADATA))
    return network


def _addresses(network: object) -> Iterator[Address]:
    for ethernet in mapping(mapping(network).get("ethernets")).values():
        listed = mapping(ethernet).get("addresses")
        for item in listed if isinstance(listed, list) else ():
            yield ip_address(str(item).partition("/")[0])


def _load(document: bytes) -> object:
    """YAML that is read in milliseconds: no aliases, which make much of little, nothing deep, and
    not much of it.
    """
    is_deep = sum(document.count(bracket) for bracket in (b"[", b"{")) > MAX_BRACKETS
    tokens = () if is_deep else [*islice(yaml.scan(document), MAX_TOKENS + 1)]
    is_long = not 0 < len(tokens) <= MAX_TOKENS
    if is_long or any(isinstance(token, yaml.AliasToken) for token in tokens):
        raise ValueError("the metadata is too deep, too long, or has aliases")
    return yaml.safe_load(document)
