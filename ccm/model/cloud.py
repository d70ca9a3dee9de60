"""What a cloud says about its objects, independent of which cloud says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
    """

    provider_id: str
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    power: PowerState = PowerState.RUNNING


@dataclass(frozen=True, slots=True)
class Gone:
    """The cloud's positive word that a machine does not exist; never inferred from an error."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer about a machine: an error, a timeout, a denied call or a missing field."""

    why: str


Answer = Instance | Gone | Unknown
