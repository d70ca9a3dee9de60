"""The addresses of an instance in the order that upstream gives them, by IP family."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from ccm.model.cloud import AddressType, NodeAddress
from ccm.model.objects import Json, mapping, objects, text


def addresses_of(instance: Mapping[str, Any], families: Sequence[str]) -> tuple[NodeAddress, ...]:
    """All addresses, the first family's before the second's; ValueError when one is no IP.

    IPv4: the private IPs of every network interface in use, the public IP, the private DNS name,
    which is the host name too, and the public one. IPv6: the first address of each interface.
    """
    read = {"ipv4": _ipv4, "ipv6": _ipv6}
    return tuple(address for family in families for address in read[family](instance))


def _ipv4(instance: Mapping[str, Any]) -> Iterator[NodeAddress]:
    for interface in _interfaces_in_use(instance):
        for private in objects(interface.get("PrivateIpAddresses")):
            if ip := text(private.get("PrivateIpAddress")):
                yield NodeAddress(AddressType.INTERNAL_IP, str(ip_address(ip)))
    if public := text(instance.get("PublicIpAddress")):
        yield NodeAddress(AddressType.EXTERNAL_IP, str(ip_address(public)))
    if name := text(instance.get("PrivateDnsName")):
        yield NodeAddress(AddressType.INTERNAL_DNS, name)
        yield NodeAddress(AddressType.HOSTNAME, name)
    if name := text(instance.get("PublicDnsName")):
        yield NodeAddress(AddressType.EXTERNAL_DNS, name)


def _ipv6(instance: Mapping[str, Any]) -> Iterator[NodeAddress]:
    for interface in _interfaces_in_use(instance):
        for first in objects(interface.get("Ipv6Addresses"))[:1]:
            yield NodeAddress(AddressType.INTERNAL_IP, str(ip_address(text(first["Ipv6Address"]))))


def _interfaces_in_use(instance: Mapping[str, Any]) -> list[Json]:
    """The primary interface first, whatever order the answer has them in."""
    interfaces = objects(instance.get("NetworkInterfaces"))
    in_use = [interface for interface in interfaces if interface.get("Status") == "in-use"]
    return sorted(in_use, key=_position)


def _position(interface: Json) -> tuple[int, int]:
    attachment = mapping(interface.get("Attachment"))
    card, device = attachment.get("NetworkCardIndex"), attachment.get("DeviceIndex")
    return card if isinstance(card, int) else 0, device if isinstance(device, int) else 0
