"""Whose an object in AWS is: the tags of a cluster and of a Service."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from ccm.errors import CloudError, Refused
from ccm.model.objects import objects, text
from ccm.model.service import Service

CLUSTER_TAG_PREFIX = "kubernetes.io/cluster/"
LEGACY_CLUSTER_TAG = "KubernetesCluster"
SERVICE_TAG = "kubernetes.io/service-name"
SERVICE_UID_TAG = "ccm-supervisor/service-uid"
ADDRESS_TYPE_TAG = "ccm-supervisor/ip-address-type"
OWNERSHIP_PREFIXES = (
    "kubernetes.io/",
    "ccm-supervisor/",
    # The AWS Load Balancer Controller's:
    "elbv2.k8s.aws/",
    "service.k8s.aws/",
    "ingress.k8s.aws/",
)
OWNED = "owned"
MAX_TAGS, MAX_KEY, MAX_VALUE = 50, 128, 256
"""Tags of an object, without those of AWS itself, and characters of their keys and values."""
RESERVED_PREFIX = "aws:"
REREAD_INTERVAL = 60.0  # seconds until tags that do not name one cluster are read again
KEPT = 600.0  # seconds until those that do are

Tags = Mapping[str, str]


def says_ownership(key: str) -> bool:
    """Whether a tag of this key says whose an object is, ours or anybody's."""
    return key == LEGACY_CLUSTER_TAG or key.startswith(OWNERSHIP_PREFIXES)


def is_unmarked(tags: Tags) -> bool:
    """Whether no tag says whose an object is."""
    return not any(map(says_ownership, tags))


def read_tags(listed: object) -> dict[str, str]:
    """The tags in AWS's list of keys and values."""
    return {text(tag.get("Key")): text(tag.get("Value")) for tag in objects(listed)}


def tag_list(tags: Tags) -> list[dict[str, str]]:
    """The tags as AWS's list of keys and values, in the order of their keys."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


@dataclass(frozen=True, slots=True)
class ClusterTag:
    """The tag of one cluster, `kubernetes.io/cluster/<ID>`."""

    cluster_id: str

    @property
    def key(self) -> str:
        return CLUSTER_TAG_PREFIX + self.cluster_id

    def is_on(self, tags: Tags) -> bool:
        """Whether an object is this cluster's, alone or shared with others."""
        return self.key in tags or tags.get(LEGACY_CLUSTER_TAG) == self.cluster_id

    def is_foreign(self, tags: Tags) -> bool:
        """Whether an object is another cluster's, and not ours as well."""
        return bool(cluster_ids(tags)) and not self.is_on(tags)

    def owns(self, tags: Tags) -> bool:
        """Whether an object was created by this cluster for itself; the legacy tag says so, too."""
        is_legacy = self.key not in tags and cluster_ids(tags) == {self.cluster_id}
        return is_legacy or tags.get(self.key) == OWNED

    def tags_for(self, service: Service) -> dict[str, str]:
        """The tags of what is created for a Service; upstream has all but that of the UID."""
        return {self.key: OWNED, SERVICE_TAG: service.key, SERVICE_UID_TAG: service.uid}

    def owns_for(self, service: Service, tags: Tags) -> bool:
        """Whether an object is this Service's; upstream's objects lack the UID."""
        is_its = tags.get(SERVICE_UID_TAG, service.uid) == service.uid
        return is_its and self.owns(tags) and tags.get(SERVICE_TAG) == service.key


def cluster_ids(tags: Tags) -> set[str]:
    """The clusters that the tags name."""
    prefix = CLUSTER_TAG_PREFIX
    found = {key.removeprefix(prefix) for key in tags if key.startswith(prefix)}
    return found or {tags[key] for key in (LEGACY_CLUSTER_TAG,) if key in tags}


@dataclass(frozen=True, slots=True)
class TagRequest:
    """Tags that an instance, by its ID, is to have or, when they are not wanted, is to lose."""

    name: str
    tags: Tags
    is_wanted: bool

    @property
    def cloud_identity(self) -> tuple[str, ...]:
        return (str(self.is_wanted),)

    def change(self, current: Tags) -> dict[str, str]:
        """What to write on one that has `current`; a tag that has another value by now is kept."""
        tags = self.tags.items()
        return {key: value for key, value in tags if (current.get(key) == value) != self.is_wanted}

    def has_room(self, current: Tags) -> bool:
        """Whether it can have them all."""
        own = {key for key in current if not key.startswith(RESERVED_PREFIX)}
        return not self.is_wanted or len(own | self.tags.keys()) <= MAX_TAGS


class ClusterTagging:
    """Which cluster we are: configured, or found on the instance that we run on."""

    REMEDY = (
        "set KubernetesClusterID in the cloud-config, or tag this instance with"
        f" {CLUSTER_TAG_PREFIX}<cluster ID>"
    )

    def __init__(
        self,
        known_id: str,
        own_tags: Callable[[], Tags] | None,
        is_optional: bool = False,
        reread_interval: float = REREAD_INTERVAL,
    ) -> None:
        """`own_tags` reads the tags of our instance; None when the ID is given, or we run on none.

        With it `known_id` is what the metadata service has of these tags.
        """
        self._cluster_ids = self._named = {known_id} - {""}
        self._own_tags, self._is_optional = own_tags, is_optional
        self._read_at, self._reread_interval = float("-inf"), reread_interval
        self._lock = Lock()

    @property
    def has_cluster_id(self) -> bool:
        """Whether there is an ID, or an instance whose tags may have one."""
        return bool(self._cluster_ids) or self._own_tags is not None

    def cluster_tag(self) -> ClusterTag:
        """The cluster's tag; `Refused` when it is not known, for then nothing is provably ours."""
        found = self._read_cluster_ids()
        if not found:
            raise Refused(f"there is no cluster ID: {self.REMEDY}")
        if len(found) > 1:
            names = ", ".join(sorted(found))
            raise Refused(f"this instance's tags name not one cluster but {names}: {self.REMEDY}")
        (cluster_id,) = found
        return ClusterTag(cluster_id)

    def required_tag(self) -> ClusterTag | None:
        """The tag that an instance must have; None where any instance will do."""
        return None if self._is_optional and not self._read_cluster_ids() else self.cluster_tag()

    def _read_cluster_ids(self) -> set[str]:
        """The clusters that the last two reads of the tags name: one of them may be wrong."""
        with self._lock:
            interval = KEPT if len(self._cluster_ids) == 1 else self._reread_interval
            if self._own_tags and time.monotonic() - self._read_at > interval:
                try:
                    found = cluster_ids(self._own_tags())
                    self._cluster_ids, self._named = found | self._named, found
                except CloudError:
                    if not self._cluster_ids:
                        raise
                self._read_at = time.monotonic()
            return self._cluster_ids
