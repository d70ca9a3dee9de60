"""What upstream calls the parts of a Service, by which both controllers find their own."""

import re
from dataclasses import dataclass

from ccm.model.service import Service

IPV4, IPV6 = "IPv4", "IPv6"
MOST_NAME = 80 - len("-IPv6")  # characters
BASE = re.compile(r"a[0-9a-f]{31}", re.IGNORECASE)
SHARED_PROBE = "cluster-service-shared-health-probe"

SERVICE_TAGS = "k8s-azure-service", "service"
CLUSTER_TAGS = "k8s-azure-cluster-name", "kubernetes-cluster-name"
DNS_TAGS = "k8s-azure-dns-label-service", "kubernetes-dns-label-service"
"""Tags of public addresses, each with its old name."""


@dataclass(frozen=True, slots=True)
class Names:
    """Of one Service of the cluster of this name; `subnet` as its annotation says.

    Where there are `several` load balancers, each has some of the machines in the cluster's pool.
    """

    cluster: str
    service: Service
    subnet: str = ""
    several: bool = False

    @property
    def base(self) -> str:
        """`a` and the UID, as far as 32 characters go."""
        return self.service.default_balancer_name

    @property
    def is_dual(self) -> bool:
        return len(self.service.ip_families) > 1

    def is_own(self, name: str) -> bool:
        """Whether a frontend, rule or probe of this name is the Service's."""
        return name.lower() == self.base or name.lower().startswith(f"{self.base}-")

    def frontend(self, family: str) -> str:
        name = f"{self.base}-{self.subnet}" if self.subnet else self.base
        if len(name) > MOST_NAME:
            name = name[:MOST_NAME]
            if not (name[-1].isalpha() or name[-1] == "_"):
                name = f"{name[:-1]}_"
        return self._of_family(name, family)

    def rule(self, protocol: str, port: int, family: str) -> str:
        """Of a rule, and of its probe."""
        end = f"{protocol}-{port}"
        room = MOST_NAME - len(f"{self.base}-{end}") - 1
        parts = (self.base, self.subnet[:room], end) if self.subnet else (self.base, end)
        return self._of_family("-".join(parts), family)

    def address(self, family: str, prefix: str = "") -> str:
        """Of a public address, made of a prefix or not."""
        name = "-".join(filter(None, (self.cluster, self.base, prefix)))
        return self._of_family(name[:MOST_NAME], family)

    def pool(self, family: str) -> str:
        """The pool of its machines: its own where only those with an endpoint take traffic."""
        if self.several and self.service.is_local_only:
            return self._own_pool(family)
        return pool_of(self.cluster, family)

    @property
    def pools(self) -> dict[str, str]:
        """The family of each pool that the cluster may have, by its name in lower case."""
        return {pool_of(self.cluster, family).lower(): family for family in (IPV4, IPV6)}

    def is_managed_pool(self, name: str) -> bool:
        return name.lower() in self.pools or self.owns_pool(name)

    def owns_pool(self, name: str) -> bool:
        """Whether a pool of this name is, or was, the Service's own."""
        return self.several and name.lower() in map(self._own_pool, (IPV4, IPV6))

    def _own_pool(self, family: str) -> str:
        name = self.service.key.replace("/", "-").lower()
        return f"{name}-ipv6" if family == IPV6 else name

    def _of_family(self, name: str, family: str) -> str:
        return f"{name}-IPv6" if self.is_dual and family == IPV6 else name


def pool_of(cluster: str, family: str) -> str:
    """The pool of all machines for a family."""
    return f"{cluster}-IPv6" if family == IPV6 else cluster


def uid_of(base: str) -> str:
    """The UID in a base name, which lacks the last character."""
    digits = base[1:].lower()
    parts = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
    return "-".join(parts)
