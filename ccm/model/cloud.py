"""What a cloud reports about its objects, whichever cloud it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ccm.redaction import safe_text


class AddressType(StrEnum):
    """`status.addresses[].type` of a Node."""

    HOSTNAME = "Hostname"
    INTERNAL_IP = "InternalIP"
    EXTERNAL_IP = "ExternalIP"
    INTERNAL_DNS = "InternalDNS"
    EXTERNAL_DNS = "ExternalDNS"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """One entry of `status.addresses`."""

    type: AddressType
    address: str


class PowerState(StrEnum):
    """Whether a machine that exists is on. A machine on its way up counts as running."""

    RUNNING = "running"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine that exists, on or off.

    `provider_id` has the form `<scheme>://<id>` and never changes in the machine's life. Empty text
    means "the cloud does not say" and never overwrites what a Node already has. `labels` are extra
    node labels; keys under kubernetes.io or k8s.io are ignored.

    For Nodes that name one machine: `aliases` are other provider IDs that name it too, `names` what
    the cloud calls it, as its Node may be called, `system_uuid` what its kubelet reads of the BIOS.
    """

    provider_id: str
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    power: PowerState = PowerState.RUNNING
    aliases: tuple[str, ...] = field(default=(), compare=False)
    names: tuple[str, ...] = field(default=(), compare=False)
    system_uuid: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Gone:
    """The cloud's positive answer that a machine does not exist; never inferred from an error."""

    evidence: str
    is_final: bool = False
    """The cloud names the machine and says that it ended, which it never takes back."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", safe_text(self.evidence))


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer about a machine: an error, a timeout, a denied call or a missing field."""

    why: str
    is_nowhere: bool = False
    """No machine was found, or the place that a Node names is none of this cloud's: no proof that
    one is gone.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", safe_text(self.why))


Answer = Instance | Gone | Unknown


def is_absent(answer: Answer | None) -> bool:
    """Whether no machine is there, be that proven or not."""
    return isinstance(answer, Gone) or (isinstance(answer, Unknown) and answer.is_nowhere)


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""What many clouds take for IDs; in capitals, too, as some BIOSes have theirs."""


def swapped_uuid(uuid: str) -> str:
    """With the bytes of its first three groups backwards; empty when it is no UUID."""
    groups = uuid.split("-", 3)
    try:
        turned = [bytes.fromhex(group)[::-1].hex() for group in groups[:3]]
    except ValueError:
        return ""
    return "-".join((*turned, *groups[3:]))


Network = IPv4Network | IPv6Network
MAX_ADDRESS = 64  # characters of an address or network, more than any has


def read_network(cidr: str) -> Network | None:
    """The network that `cidr` names, or None; host bits are dropped, as Go's ParseCIDR does."""
    _, _, length = cidr[:MAX_ADDRESS].partition("/")
    if not (length.isascii() and length.isdecimal()) or "%" in cidr or len(cidr) > MAX_ADDRESS:
        return None
    try:
        return ip_network(cidr, strict=False)
    except ValueError:
        return None


def read_address(written: str) -> IPv4Address | IPv6Address | None:
    """The address that it names, or None.

    None with a zone as well (`fe80::1%eth0`), which may be any text: guests report what they like.
    """
    try:
        return ip_address(written[:MAX_ADDRESS]) if "%" not in written else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Route:
    """A route in the cloud's network from a pod CIDR to a machine.

    `node` is the name of the target's Node, empty when the target is not known; `id` is the
    provider's own name, empty before the route exists. `addresses` are those of the target, or None
    when this cloud's routes do not carry any. `is_marked` when the route itself carries this
    cluster's mark, so that nothing else can have made it: it goes with its Node wherever it leads,
    any other one only inside --cluster-cidr.
    """

    cidr: str
    node: str
    id: str = ""
    is_blackhole: bool = False
    addresses: tuple[NodeAddress, ...] | None = None
    is_marked: bool = False


class IpMode(StrEnum):
    """`status.loadBalancer.ingress[].ipMode`: whether traffic arrives with the balancer's IP."""

    VIP = "VIP"
    PROXY = "Proxy"


@dataclass(frozen=True, slots=True)
class Ingress:
    """One address of a load balancer: an IP or a host name, never neither."""

    ip: str = ""
    hostname: str = ""
    ip_mode: IpMode | None = None


@dataclass(frozen=True, slots=True)
class Balancer:
    """A load balancer of ours as it is now.

    `warnings` say what the Service asks for that has no effect; people get an Event of them.
    `annotations` are written to the Service with its status, for others to read; none of them may
    be one that the provider reads. `lacking` is why some of its backends are missing: clients come
    to the others, and `update_nodes` is called until it raises nothing. Where it `is_shared`, it is
    someone else's, who may serve any other port of its addresses; then `get` finds whether it
    `is_contested`: another has a port there that the Service asks for.
    """

    name: str
    ingress: tuple[Ingress, ...]
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    lacking: str = ""
    is_shared: bool = False
    is_contested: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "warnings", tuple(map(safe_text, self.warnings)))


UID_BEGIN = 35
"""Characters of a UID that upstream's name of a load balancer has room for."""


@dataclass(frozen=True, slots=True)
class OwnedBalancer:
    """A load balancer with this cluster's tag, whether or not its Service still exists.

    `service_uid` is the Service it was created for, or the first `UID_BEGIN` characters where the
    cloud has only upstream's name; `service` is `namespace/name` when the tags
    say that as well, else empty.
    """

    name: str
    service_uid: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class VolumePlace:
    """Where a volume is: the zones from which it can be used, and their region."""

    zones: tuple[str, ...]
    region: str


PlaceAnswer = VolumePlace | Gone | Unknown
