"""Which addresses balancers may have; Incus gives none out by itself."""

import random
import time
from collections.abc import Collection, Iterator, Sequence
from ipaddress import ip_address, ip_network

from ccm.cloud.lookup import MAX_PARTS
from ccm.errors import Refused
from ccm.http import path_of
from ccm.model.cloud import Network
from ccm.model.objects import Json, text
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import FORWARD, BalancerSection
from ccm.providers.incus.lb.request import IPV4

RANGES_TTL = 60.0  # seconds
MAX_LOOKS = 1000  # at addresses of one pool beyond those that are taken


class Pools:
    """The ranges that are configured, or else those that Incus lets the project use."""

    def __init__(self, api: IncusApi, section: BalancerSection) -> None:
        self._api, self._section = api, section
        self._ranges: Sequence[Network] = section.address_range
        self._read_at = float("-inf")

    async def of_family(self, family: str) -> list[Network]:
        """The ranges of an IP family; raises `Refused` when nothing says what they are."""
        if not self._section.address_range and time.monotonic() > self._read_at + RANGES_TTL:
            self._ranges, self._read_at = await self._allowed(), time.monotonic()
        version = 4 if family == IPV4 else 6
        return [item for item in self._ranges if item.version == version]

    async def _allowed(self) -> Sequence[Network]:
        section = self._section
        if section.mode == FORWARD:
            raise Refused(
                "forwards need address-range in [LoadBalancer]: nothing else selects the addresses"
            )
        uplink = text((await self._network(section.network, section.project)).get("network"))
        path = path_of("projects", section.project)
        config = await self._api.get_config("GetProject", path, section.project)
        if config.get("restricted") == "true":
            return list(allowed_subnets(text(config.get("restricted.networks.subnets")), uplink))
        routes = await self._network(uplink, "default")
        listed = (text(routes.get(f"{family}.routes")) for family in ("ipv4", "ipv6"))
        return list(networks_in(",".join(listed)))

    async def _network(self, name: str, project: str) -> Json:
        path = path_of("networks", name)
        return await self._api.get_config("GetNetwork", path, name, project=project)


def allowed_subnets(value: str, uplink: str) -> Iterator[Network]:
    """The networks of an uplink in `restricted.networks.subnets`, as `UPLINK:CIDR,…`."""
    for item in value.split(",", MAX_PARTS)[:MAX_PARTS]:
        name, _, network = item.strip().partition(":")
        if name == uplink:
            yield from networks_in(network)


def networks_in(value: str) -> Iterator[Network]:
    """The networks of a list with commas; an invalid item is left out."""
    for item in filter(None, map(str.strip, value.split(",", MAX_PARTS)[:MAX_PARTS])):
        try:
            yield ip_network(item)
        except ValueError:
            continue


def is_usable(address: str, pools: Sequence[Network]) -> bool:
    """Whether it is in a pool, and is not the address of a network itself or its broadcast's."""
    ip = ip_address(address)
    inside = [pool for pool in pools if pool.version == ip.version and ip in pool]
    return any(pool.num_addresses <= 2 or ip not in _reserved(pool) for pool in inside)


def free_addresses(pools: Sequence[Network], taken: Collection[str]) -> Iterator[str]:
    """The usable addresses that are free as far as is known, from anywhere in each pool on.

    From somewhere else each time: a refused one may have an owner that we do not see.
    """
    for pool in random.sample(pools, len(pools)):
        start = random.randrange(pool.num_addresses)
        for number in range(min(pool.num_addresses, len(taken) + MAX_LOOKS)):
            address = str(pool[(start + number) % pool.num_addresses])
            if address not in taken and is_usable(address, [pool]):
                yield address


def _reserved(pool: Network) -> tuple[object, ...]:
    return (pool[0], pool[-1]) if pool.version == 4 else (pool[0],)
