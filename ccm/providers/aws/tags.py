"""Whose an object in AWS is: tags of a cluster and of a Service."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from ccm.errors import Refused
from ccm.model.objects import objects, text
from ccm.model.service import Service

CLUSTER_PREFIX = "kubernetes.io/cluster/"
LEGACY_CLUSTER = "KubernetesCluster"
SERVICE = "kubernetes.io/service-name"
OWNED = "owned"
LOOK_AGAIN = 60.0  # seconds until tags that do not name one cluster are read again

Tags = Mapping[str, str]


def read_tags(listed: object) -> dict[str, str]:
    """The tags in AWS's list of keys and values."""
    return {text(tag.get("Key")): text(tag.get("Value")) for tag in objects(listed)}


def tag_list(tags: Tags) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one cluster, by its ID."""

    cluster_id: str

    @property
    def key(self) -> str:
        return CLUSTER_PREFIX + self.cluster_id

    def is_on(self, tags: Tags) -> bool:
        """Whether an object is this cluster's, alone or shared with others."""
        return self.key in tags or tags.get(LEGACY_CLUSTER) == self.cluster_id

    def owns(self, tags: Tags) -> bool:
        """Whether an object was made by this cluster for itself."""
        return tags.get(self.key) == OWNED

    def for_service(self, service: Service) -> dict[str, str]:
        """The tags of what is made for a Service; its UID is in the object's name."""
        return {self.key: OWNED, SERVICE: service.key}

    def owns_for(self, service: Service, tags: Tags) -> bool:
        return self.for_service(service).items() <= tags.items()


def cluster_ids(tags: Tags) -> set[str]:
    """The clusters that an instance's tags name."""
    new = {key.removeprefix(CLUSTER_PREFIX) for key in tags if key.startswith(CLUSTER_PREFIX)}
    return new or {tags[key] for key in (LEGACY_CLUSTER,) if key in tags}


class Ownership:
    """This cluster's mark: configured, or found on the instance that we run on."""

    REMEDY = (
        "set KubernetesClusterID in the cloud-config, or tag this instance with"
        f" {CLUSTER_PREFIX}<cluster ID>"
    )

    def __init__(
        self, configured: str, own_tags: Callable[[], Tags] | None, is_optional: bool = False
    ) -> None:
        """`own_tags` reads the tags of our instance; None when we do not run on one."""
        self._found = {configured} - {""}
        self._own_tags, self._is_optional = own_tags, is_optional
        self._read_at = float("-inf")
        self._lock = Lock()

    @property
    def is_there(self) -> bool:
        """Whether there is an ID, or an instance whose tags may have one."""
        return bool(self._found) or self._own_tags is not None

    def mark(self) -> Mark:
        """The mark; `Refused` when nothing says what it is, for then nothing is provably ours."""
        found = self._clusters()
        if not found:
            raise Refused(f"there is no cluster ID: {self.REMEDY}")
        if len(found) > 1:
            names = ", ".join(sorted(found))
            raise Refused(f"this instance's tags name not one cluster but {names}: {self.REMEDY}")
        (cluster_id,) = found
        return Mark(cluster_id)

    def mark_to_look_for(self) -> Mark | None:
        """The mark that tells an instance of ours; None where any will do (`is_optional`)."""
        return None if self._is_optional and not self._clusters() else self.mark()

    def _clusters(self) -> set[str]:
        """The clusters that are named; the tags are read again as long as that is not one."""
        with self._lock:
            is_old = time.monotonic() - self._read_at > LOOK_AGAIN
            if self._own_tags and len(self._found) != 1 and is_old:
                self._found = cluster_ids(self._own_tags())
                self._read_at = time.monotonic()
            return self._found
