"""Whose a load balancer is: by its name, its tags, or the address in the Service's status.

Upstream calls it after the Service's UID, or as an annotation says; then it writes the ID into an
annotation, which its tenant may change as the other annotations: none of them says whose it is. A
status belongs to the controllers alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ccm.errors import Refused
from ccm.model.objects import Json, text
from ccm.model.service import Service
from ccm.providers.digitalocean.ids import SERVICE_TAG, Cluster, service_of, tags_of
from ccm.providers.digitalocean.lb.annotations import BALANCER_ID, PREFIX

DEFAULT_NAME = re.compile(r"a[0-9a-f]{31}")


@dataclass(frozen=True, slots=True)
class Names:
    """Of one Service; `wanted` is the name by annotation, else `default`, which has its UID."""

    service: Service
    cluster: Cluster

    @property
    def default(self) -> str:
        return self.service.default_balancer_name

    @property
    def wanted(self) -> str:
        return str(self.service.annotations.get(f"{PREFIX}name") or "").strip() or self.default

    @property
    def hostname(self) -> str:
        return str(self.service.annotations.get(f"{PREFIX}hostname") or "").strip().lower()

    @property
    def annotated_id(self) -> str:
        return str(self.service.annotations.get(BALANCER_ID) or "").strip()

    def is_proven(self, record: Json) -> bool:
        """Whether it is this Service's, by what no tenant writes."""
        if self.cluster.is_foreign(tags_of(record)):
            return False
        if service_of(tags_of(record)) in ("", self.service.uid):
            is_ours = self.is_marked(record) or record.get("name") == self.default
            has_name = DEFAULT_NAME.fullmatch(text(record.get("name")))
            return is_ours or (not has_name and self.is_published(record))
        return False

    def is_marked(self, record: Json) -> bool:
        """Whether a tag of ours says so, as the API shows it."""
        return SERVICE_TAG + self.service.uid in tags_of(record)

    def is_published(self, record: Json) -> bool:
        """Whether the Service's status has its address."""
        addresses = {text(record.get("ip")), text(record.get("ipv6"))} - {""}
        return any(text(item.get("ip")) in addresses for item in self.service.ingress)

    def may_rename(self, record: Json) -> bool:
        """Whether it is known for the Service's when it has another name."""
        is_by_address = self.is_published(record) and not self.hostname
        return self.wanted == self.default or self.is_marked(record) or is_by_address

    def own(self, records: Sequence[Json]) -> list[Json]:
        """The Service's own of all that there are, those first whose address is published."""
        own = [record for record in records if self.is_proven(record)]
        return sorted(own, key=lambda record: not self.is_published(record))

    def check_free(self, records: Sequence[Json], is_deleted: bool) -> None:
        """Raise `Refused` for what has its name, or its annotation names, and is not its own.

        The annotation says nothing where the load balancer is to be deleted.
        """
        for record in records:
            name, balancer_id = text(record.get("name")), text(record.get("id"))
            is_claimed = balancer_id == self.annotated_id and not is_deleted
            if name == self.default and self.cluster.is_foreign(tags_of(record)):
                raise Refused(
                    f"load balancer {name} ({balancer_id}) carries the tag of another cluster: if "
                    f"it is this one's, tag it {self.cluster.tag}"
                )
            if is_claimed or name == self.default:
                raise Refused(
                    f"load balancer {name} ({balancer_id}) is not known to be this Service's: to "
                    f"give it to the Service, rename it to {self.default}"
                )
