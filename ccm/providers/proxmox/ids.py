"""Provider IDs of Nodes, and what they say of a virtual machine."""

import re
from dataclasses import dataclass

from ccm.model.cloud import UUID

SCHEME = "proxmox"
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*")
REGION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

_NUMBERED = re.compile(rf"{SCHEME}://({REGION.pattern})?/([1-9][0-9]{{2,8}})")
_BY_UUID = re.compile(rf"{SCHEME}://({UUID.pattern})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Numbered:
    """`proxmox://REGION/VMID`; old IDs have no region. A VMID is given again after a deletion."""

    region: str
    vmid: int


@dataclass(frozen=True, slots=True)
class ByUuid:
    """`proxmox://UUID`, which Cluster API's provider writes; in small letters."""

    uuid: str


def parse(provider_id: str) -> Numbered | ByUuid | None:
    """What a provider ID names; None when it names no machine."""
    if match := _BY_UUID.fullmatch(provider_id):
        return ByUuid(match[1].lower())
    if match := _NUMBERED.fullmatch(provider_id):
        return Numbered(match[1] or "", int(match[3]))
    return None


def numbered(region: str, vmid: int) -> str:
    """The provider ID by cluster and VMID."""
    return f"{SCHEME}://{region}/{vmid}"


def by_uuid(uuid: str) -> str:
    """The provider ID by UUID."""
    return f"{SCHEME}://{uuid}"
