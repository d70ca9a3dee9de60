"""What things of load balancers are called, and the marks by which they are ours.

Names and descriptions are upstream's, so that its load balancers are taken over and ours by it. A
name proves nothing: what we make carries the UID of its Service as well.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ccm.model.objects import Json, text
from ccm.model.service import Service
from ccm.providers.openstack.ids import Cluster

PREFIX = "kube_service_"
MAX_TEXT = 255  # characters in a name, tag or description
CLUSTER_TAG = "kubernetes-cluster="
CLUSTER_UID_TAG = "kubernetes-cluster-uid="
OWNER_TAG = "kubernetes-service-uid="
SHARER_TAG = "kubernetes-shared-by-uid="
FLOATING_IP = "Floating IP for Kubernetes external service"


class Role(StrEnum):
    """What a load balancer is to a Service."""

    OWNER = "owner"
    """It is the Service's own."""
    SHARER = "sharer"
    """It is another Service's, or a person's; only some listeners are this Service's."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names and marks for one Service of one cluster.

    What upstream made has no mark. It is the Service's if an annotation that upstream writes names
    it and its address is in the Service's status: annotations are copied with a manifest, and the
    controllers alone write a status. Where the Service has none, nothing `is_published`.
    """

    cluster: str
    namespace: str
    service: str
    uid: str
    is_published: bool = False
    cluster_uid: str = ""

    @classmethod
    def of(cls, service: Service, cluster: Cluster) -> "Names":
        return cls(
            cluster.name,
            service.namespace,
            service.name,
            service.uid,
            bool(service.ingress),
            cluster.uid,
        )

    @property
    def balancer(self) -> str:
        return f"{PREFIX}{self.cluster}_{self.namespace}_{self.service}"[:MAX_TEXT]

    @property
    def legacy_balancer(self) -> str:
        """What the in-tree controller called it; the UID in it makes it a mark."""
        return f"a{self.uid.replace('-', '')}"[:32]

    @property
    def owner_tag(self) -> str:
        return f"{OWNER_TAG}{self.uid}"

    @property
    def sharer_tag(self) -> str:
        return f"{SHARER_TAG}{self.uid}"

    @property
    def cluster_tags(self) -> list[str]:
        """The tags of what this cluster's controller made."""
        by_name = f"{CLUSTER_TAG}{self.cluster}"[:MAX_TEXT]
        return [by_name, *([f"{CLUSTER_UID_TAG}{self.cluster_uid}"] if self.cluster_uid else [])]

    def tags(self, role: Role) -> list[str]:
        """The tags that a load balancer has for this Service; the first is upstream's."""
        if role is Role.SHARER:
            return [self.balancer, self.sharer_tag]
        return [self.balancer, self.owner_tag, *self.cluster_tags]

    @property
    def listener_tags(self) -> list[str]:
        return [self.balancer, self.owner_tag]

    def child(self, kind: str, index: int) -> str:
        """The name of a listener, pool or monitor of one port."""
        return f"{kind}_{index}_{self.balancer}"[:MAX_TEXT]

    @property
    def description(self) -> str:
        of = f"{self.namespace}/{self.service}"
        return f"Kubernetes external service {of} from cluster {self.cluster}"[:MAX_TEXT]

    @property
    def upstream_floating_ip(self) -> str:
        """How upstream describes a floating IP that it made."""
        return f"{FLOATING_IP} {self.namespace}/{self.service} from cluster {self.cluster}"

    @property
    def floating_ip(self) -> str:
        """Ours begins as upstream's, and ends with the Service's UID."""
        end = f" ({self.uid})"
        return f"{self.upstream_floating_ip[: MAX_TEXT - len(end)]}{end}"

    def is_marked(self, floating_ip: Json) -> bool:
        """Whether a floating IP was made for this very Service."""
        said = text(floating_ip.get("description"))
        return said.startswith(FLOATING_IP) and said.endswith(f"({self.uid})")

    def is_anothers(self, floating_ip: Json) -> bool:
        """Whether one was made for a Service of another name, or another cluster's.

        One that was kept (`keep-floatingip`) is for the next Service of the same name.
        """
        said = text(floating_ip.get("description"))
        named, has_uid, _ = said.rpartition(" (")
        kept = MAX_TEXT - len(said) + len(named) if has_uid else MAX_TEXT
        own = (named or said) == self.upstream_floating_ip[:kept]
        return said.startswith(FLOATING_IP) and not (own or self.is_marked(floating_ip))

    def is_of_cluster(self, floating_ip: Json) -> bool:
        """Whether one was made by this cluster's controller, for whichever Service."""
        said, end = text(floating_ip.get("description")), f" from cluster {self.cluster}"
        return said.startswith(FLOATING_IP) and (said.endswith(end) or f"{end} (" in said)

    @property
    def security_group(self) -> str:
        return f"lb-sg-{self.uid}-{self.namespace}-{self.service}"[:MAX_TEXT]

    @property
    def security_group_description(self) -> str:
        of = f"{self.namespace}/{self.service}"
        text = f"Security Group for {of} Service LoadBalancer in cluster {self.cluster}"
        return text[:MAX_TEXT]

    def is_left_behind(self, record: Json) -> bool:
        """Whether a load balancer is a former Service's of this cluster, left to those on it."""
        tags = tags_of(record)
        is_ours = self.cluster_tags[0] in tags and not self._other_clusters(tags)
        return is_ours and not is_marked(tags)

    def is_of_another_cluster(self, record: Json) -> bool:
        """Whether one certainly is, by its cluster's UID; without ours nothing is certain."""
        return bool(self.cluster_uid and self._other_clusters(tags_of(record)))

    def _other_clusters(self, tags: Collection[str]) -> set[str]:
        """The UIDs of clusters in tags, but ours."""
        return {tag for tag in tags if tag.startswith(CLUSTER_UID_TAG)} - {*self.cluster_tags}

    def is_foreign(self, record: Json) -> bool:
        """Whether its marks or its name say that it was made for another cluster."""
        tags, name = tags_of(record), text(record.get("name"))
        if is_marked(tags):
            return self.cluster_tags[0] not in tags or self.is_of_another_cluster(record)
        own, _, of = name.partition(f"{PREFIX}{self.cluster}_")
        is_of_ours = not own and (of.count("_") == 1 or len(name) == MAX_TEXT)
        return name.startswith(PREFIX) and not is_of_ours  # names of clusters may have a _, too

    def owns(self, record: Json) -> bool:
        """Whether a load balancer says itself that it is this Service's."""
        return self.owner_tag in tags_of(record) or record.get("name") == self.legacy_balancer

    def role_of(self, record: Json) -> Role:
        """What one is to the Service whose mark it has, or whose annotation names it."""
        name, suffix = text(record.get("name")), f"_{self.namespace}_{self.service}"
        is_upstreams = name == self.balancer or (
            name.startswith(PREFIX) and name.endswith(suffix)  # in a cluster of another name
        )
        is_taken_over = self.is_published and is_upstreams and not is_marked(tags_of(record))
        return Role.OWNER if self.owns(record) or is_taken_over else Role.SHARER

    def needs_proof(self, record: Json) -> bool:
        """Whether only names say that it is this Service's, which other clusters use as well."""
        tags = tags_of(record)
        if self.owns(record) or self.sharer_tag in tags:
            return False
        return self.role_of(record) is Role.OWNER or self.balancer in tags

    def is_on(self, record: Json) -> bool:
        """Whether the Service has listeners there already, or one whose answer was lost."""
        tags = tags_of(record)
        return self.sharer_tag in tags or (self.is_published and self.balancer in tags)

    def listens(self, listener: Json, role: Role, aliases: Collection[str]) -> bool:
        """Whether a listener is this Service's; `aliases` are its load balancer's names so far."""
        tags = tags_of(listener)
        if role is Role.OWNER and not tags:
            return True  # made before there were tags
        if is_marked(tags):
            return self.owner_tag in tags
        if role is Role.OWNER:
            return not tags.isdisjoint({self.balancer, *aliases})
        return self.is_published and self.balancer in tags


def tags_of(record: Json) -> set[str]:
    listed = record.get("tags")
    return {tag for tag in listed if isinstance(tag, str)} if isinstance(listed, list) else set()


def is_marked(tags: Collection[str]) -> bool:
    """Whether a mark of ours says whose it is."""
    return any(tag.startswith(OWNER_TAG) for tag in tags)


def sharers(record: Json) -> set[str]:
    """The Services on a load balancer, by upstream's tags."""
    return {tag for tag in tags_of(record) if tag.startswith(PREFIX)}
