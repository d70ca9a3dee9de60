"""Whose a public address is, by its tags and by what has it; nothing in here acts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ccm.errors import CloudError
from ccm.model.objects import Json, mapping, text
from ccm.providers.azure.ids import key_of, properties_of, same
from ccm.providers.azure.lb.names import BASE, CLUSTER_TAGS, SERVICE_TAGS

MAX_TAG = 4096  # characters of a value


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose an address is, by its tags: a Service of the cluster by `namespace/name`.

    `balancers` are the cluster's, by their IDs in lower case.
    """

    cluster: str
    service: str
    balancers: Collection[str] = ()

    def is_of(self, record: Json) -> bool:
        """Whether it was made for a Service of this cluster, and this is one of those that use it.

        Old controllers have not written the cluster: that of another may have the name as well.
        """
        cluster = tag_of(record, CLUSTER_TAGS)
        is_ours = same(cluster, self.cluster) if cluster else not self.is_elsewhere(record)
        return is_ours and any(same(service, self.service) for service in services_of(record))

    def is_elsewhere(self, record: Json) -> bool:
        """Whether a load balancer that is not the cluster's has it."""
        balancer, frontend = _user_of(record)
        return bool(frontend) and balancer not in self.balancers

    def is_anothers(self, record: Json) -> bool:
        """Whether it was made for another cluster, or for Services without this one, or another
        cluster's Service has it.
        """
        cluster = tag_of(record, CLUSTER_TAGS)
        is_foreign = bool(cluster) and not same(cluster, self.cluster)
        has_user = self.is_elsewhere(record) and BASE.match(_user_of(record)[1])
        return is_foreign or bool(has_user or (services_of(record) and not self.is_of(record)))


def _user_of(record: Json) -> tuple[str, str]:
    """The load balancer that has it, and the name of its frontend; or what else has it, and ""."""
    user = key_of(properties_of(record).get("ipConfiguration"))
    balancer, _, frontend = user.partition("/frontendipconfigurations/")
    return balancer, frontend


def tag_of(record: Json, names: Sequence[str]) -> str:
    """The value of the first of these tags that there is."""
    tags = {key.lower(): value for key, value in mapping(record.get("tags")).items()}
    return next((text(tags[name]) for name in names if tags.get(name)), "")


def services_of(record: Json) -> list[str]:
    """The Services that use an address which a controller made."""
    listed = tag_of(record, SERVICE_TAGS)[:MAX_TAG].split(",")
    return [item.strip() for item in listed if item.strip()]


def ip_of(record: Json) -> str:
    return text(properties_of(record).get("ipAddress"))


def ips_of(frontends: Sequence[Json], listed: Sequence[Json]) -> list[str]:
    """The addresses of frontends, public ones by a list of those that is `complete` for them.

    Raises where that lacks one: it would count as unused.
    """
    public = {key_of(item): ip_of(item) for item in listed}
    found = list[str]()
    for frontend in frontends:
        properties = properties_of(frontend)
        key = key_of(properties.get("publicIPAddress"))
        if key and key not in public:
            raise CloudError(f"ListPublicAddresses: the answer lacks a public address: {key}")
        found.append(public.get(key) or text(properties.get("privateIPAddress")))
    return [item for item in found if item]
