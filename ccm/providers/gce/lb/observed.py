"""The kinds of parts that load balancers consist of, all that were found of them, and whose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.model.objects import Json, text
from ccm.providers.gce.config import Place
from ccm.providers.gce.ids import last_part
from ccm.providers.gce.lb.names import CLUSTER_KEY, UID_KEY, Names, described


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of part: its collection, how Google calls its methods, and where it is.

    `update` is how one is changed; empty for those that are made again instead.
    """

    collection: str
    methods: str
    scope: str
    update: str = ""


RULE = Kind("forwardingRules", "forwardingRules", "region")
POOL = Kind("targetPools", "targetPools", "region")
ADDRESS = Kind("addresses", "addresses", "region")
SERVICE = Kind("backendServices", "regionBackendServices", "region", "PATCH")
FIREWALL = Kind("firewalls", "firewalls", "network", "PUT")
HTTP_CHECK = Kind("httpHealthChecks", "httpHealthChecks", "global", "PUT")
CHECK = Kind("healthChecks", "healthChecks", "global", "PUT")
KINDS = (RULE, POOL, ADDRESS, SERVICE, FIREWALL, HTTP_CHECK, CHECK)


@dataclass(frozen=True, slots=True)
class Observed:
    """All parts of the project and region, by kind and name, of any creator."""

    place: Place
    parts: Mapping[Kind, Mapping[str, Json]]

    def get(self, kind: Kind, name: str) -> Json | None:
        return self.parts[kind].get(name)

    def all(self, kind: Kind) -> Sequence[Json]:
        return [*self.parts[kind].values()]


@dataclass(frozen=True, slots=True)
class Work:
    """One Service's load balancer as it is, and where and what it is called."""

    place: Place
    names: Names
    observed: Observed

    def own(self, kind: Kind) -> Json | None:
        return self.observed.get(kind, self.names.balancer)

    @property
    def rule(self) -> Json | None:
        return self.own(RULE)

    @property
    def firewall(self) -> Json:
        """That of the Service's traffic; empty where there is none."""
        return self.observed.get(FIREWALL, self.names.firewall) or {}

    @property
    def used_backend(self) -> str:
        """The backend service behind the rule, if it is the Service's or shared by Services.

        Another's may have been put there by hand.
        """
        name = last_part(text((self.rule or {}).get("backendService")))
        is_shared = name.startswith(self.names.shared_backend_prefix)
        is_own = self.names.is_own(self.observed.get(SERVICE, name) or {})
        return name if is_shared or is_own else ""

    @property
    def is_there(self) -> bool:
        return any(self.own(kind) for kind in (RULE, POOL, SERVICE))

    @property
    def is_marked(self) -> bool:
        """What is there carries the marks of this cluster and of this very Service."""
        parts = [part for kind in (RULE, POOL, SERVICE, ADDRESS) if (part := self.own(kind))]
        marks = self.names.cluster_id, self.names.uid
        has_marks = any(
            (said.get(CLUSTER_KEY), said.get(UID_KEY)) == marks for said in map(described, parts)
        )
        return has_marks and all(map(self.names.is_own, parts))

    @property
    def is_begun(self) -> bool:
        """A creation was broken off: no rule, and all that is there is described as its own."""
        parts = [self.own(kind) for kind in (POOL, SERVICE, ADDRESS)]
        found = [*filter(None, (*parts, self.firewall))]
        return self.rule is None and bool(found) and all(map(self.names.is_own, found))

    @property
    def is_internal(self) -> bool:
        """What is there is internal."""
        if self.rule is None:
            return self.own(SERVICE) is not None
        return self.rule.get("loadBalancingScheme") == "INTERNAL"
