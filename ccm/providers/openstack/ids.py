"""Names of OpenStack's objects as Kubernetes writes them: provider IDs, handles of volumes."""

import re
from dataclasses import dataclass

from ccm.model.cloud import UUID

SCHEME = "openstack"
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*|/{UUID.pattern}", re.IGNORECASE)
"""A kubelet may register with the bare ID behind a slash, too: upstream takes it."""

_FORM = re.compile(rf"(?:{SCHEME}://([^/]*))?/({UUID.pattern})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Whose things are: by `--cluster-name`, which upstream goes by, and by the cluster's UID.

    Another cluster may have the same name. The UID is empty where it may not be read.
    """

    name: str
    uid: str = ""


def server_id_of(provider_id: str) -> str:
    """The server that a provider ID names; empty when it names none."""
    match = _FORM.fullmatch(provider_id)
    return match[2].lower() if match else ""


def region_of(provider_id: str) -> str:
    """The region in a provider ID; empty in the usual form, which has none."""
    match = _FORM.fullmatch(provider_id)
    return match[1] or "" if match else ""


def server_in(region: str, provider_id: str) -> str:
    """The server of this region that a provider ID names; any, while no region is known."""
    named = region_of(provider_id)
    return server_id_of(provider_id) if not region or named in ("", region) else ""


def volume_id_of(handle: str) -> str:
    """The volume that the handle of a PersistentVolume names; empty when it names none."""
    return handle.lower() if UUID.fullmatch(handle) else ""


def provider_id(server_id: str, region: str) -> str:
    """`openstack:///<id>`, with the region before the last slash where it is wanted."""
    return f"{SCHEME}://{region}/{server_id}"
