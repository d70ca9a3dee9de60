"""Provider IDs of Nodes, and the tags by which things are a cluster's."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ccm.model.objects import text

SCHEME = "digitalocean"
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*")
TAG = re.compile(r"[A-Za-z0-9_:-]{1,255}")

CLUSTER_TAG = "k8s:"
"""Upstream's, with `DO_CLUSTER_ID`."""
SERVICE_TAG = "k8s-service-uid:"
"""Ours: a load balancer's name may be changed, and then says nothing of its Service."""

_FORM = re.compile(rf"{SCHEME}://([1-9][0-9]{{0,17}})")


def droplet_of(provider_id: str) -> int:
    """The number of the droplet that a provider ID names; 0 when it names none."""
    match = _FORM.fullmatch(provider_id)
    return int(match[1]) if match else 0


def provider_id(droplet_id: int) -> str:
    """`digitalocean://NUMBER`; a number is never given again."""
    return f"{SCHEME}://{droplet_id}"


def tags_of(record: Mapping[str, object]) -> frozenset[str]:
    """The tags of a record; none where the API shows none."""
    listed = record.get("tags")
    return frozenset(map(text, listed)) if isinstance(listed, list) else frozenset()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Whose things are: by the ID in the configuration, else by the cluster's UID.

    A copy of a cluster, as from a backup, has the same UID, and another ID if it is given one.
    """

    id: str
    uid: str = ""  # that of things from before there was an ID

    @property
    def tag(self) -> str:
        return f"{CLUSTER_TAG}{self.id}" if self.id else ""

    def tags(self, service_uid: str) -> list[str]:
        """Those of what is made for a Service."""
        return [*filter(None, [self.tag]), f"{SERVICE_TAG}{service_uid}"]

    def is_foreign(self, tags: Collection[str]) -> bool:
        """Whether tags name another cluster, and not this one."""
        named = {tag for tag in tags if tag.startswith(CLUSTER_TAG)}
        own = {self.tag, f"{CLUSTER_TAG}{self.uid}"}
        return bool(named and self.tag and named.isdisjoint(own))


def service_of(tags: Collection[str]) -> str:
    """The UID of the Service that tags name; empty when they name none."""
    found = sorted(tag for tag in tags if tag.startswith(SERVICE_TAG))
    return found[0].removeprefix(SERVICE_TAG) if found else ""
