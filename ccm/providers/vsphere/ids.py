"""Provider IDs of Nodes, and the two orders of bytes in which a machine's BIOS UUID is written."""

import re

from ccm.model.cloud import UUID

SCHEME = "vsphere"
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*", re.DOTALL)


def parse(provider_id: str) -> str:
    """The BIOS UUID in `vsphere://UUID`, in small letters; empty when there is none."""
    return read_uuid(provider_id.strip().removeprefix(f"{SCHEME}://"))


def by_uuid(uuid: str) -> str:
    """The provider ID of the machine with this BIOS UUID."""
    return f"{SCHEME}://{uuid}"


def read_uuid(written: str) -> str:
    """A UUID in small letters; empty when it is invalid."""
    uuid = written.strip().lower()
    return uuid if UUID.fullmatch(uuid) else ""
