"""Provider IDs of Nodes, and what they say of an instance."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ccm.model.cloud import UUID

SCHEME = "incus"
PROVIDER_IDS = re.compile(rf"({SCHEME}|lxc)://.*")
"""`lxc:///NAME` is what Cluster API's provider writes: it is read, and never written."""

OURS = "user.ccm."
CLUSTER, CLUSTER_UID = f"{OURS}cluster", f"{OURS}cluster-uid"
"""Keys of a balancer's configuration that say which cluster's it is."""

_FORM = re.compile(rf"{SCHEME}://[^/]+/({UUID.pattern})", re.IGNORECASE)
_NAME_FORM = re.compile(r"lxc:///([A-Za-z0-9-]{1,63})")


def uuid_of(provider_id: str) -> str:
    """The UUID of the instance that a provider ID names; empty when it names none by it."""
    match = _FORM.fullmatch(provider_id)
    return match[1].lower() if match else ""


def name_of(provider_id: str) -> str:
    """The name of the instance that a provider ID of Cluster API's names; empty otherwise."""
    match = _NAME_FORM.fullmatch(provider_id)
    return match[1] if match else ""


def provider_id(project: str, uuid: str) -> str:
    """`incus://PROJECT/UUID`: a name may be another machine's tomorrow."""
    return f"{SCHEME}://{project}/{uuid}"


def by_name(name: str) -> str:
    """`lxc:///NAME`, Cluster API's."""
    return f"lxc:///{name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Whose things are: by `--cluster-name`, and by the cluster's UID, as names may be the same.

    The UID is empty where it may not be read.
    """

    name: str
    uid: str = ""

    @property
    def marks(self) -> dict[str, str]:
        """What the configuration of a balancer says of it."""
        by_uid = {CLUSTER_UID: self.uid} if self.uid else {}
        return {CLUSTER: self.name, **by_uid}

    def may_own(self, config: Mapping[str, str]) -> bool:
        """Whether a configuration is not marked as another's; by the name where a UID is missing.

        Enough only with the UID of a Service beside it, which no other cluster has.
        """
        uid = config.get(CLUSTER_UID, "")
        return uid == self.uid if uid and self.uid else config.get(CLUSTER) == self.name

    def owns(self, config: Mapping[str, str]) -> bool:
        """Whether it is certainly ours: by UID, and by name where no UID is known."""
        return config.get(CLUSTER_UID, "") == self.uid and self.may_own(config)
