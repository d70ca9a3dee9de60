"""The kinds of parts that load balancers consist of, and all that were found of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccm.model.objects import Json
from ccm.providers.gce.config import Place


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
    """All parts of the project and region, by kind and name, of any creator.

    `round` counts the deletions of shared parts before the read.
    """

    place: Place
    parts: Mapping[Kind, Mapping[str, Json]]
    round: int = 0

    def get(self, kind: Kind, name: str) -> Json | None:
        return self.parts[kind].get(name)

    def all(self, kind: Kind) -> Sequence[Json]:
        return [*self.parts[kind].values()]
