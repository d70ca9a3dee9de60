"""What parts of a load balancer are called: as by upstream, so that each finds the other's."""

import hashlib
import json
import re
from dataclasses import dataclass

from ccm.model.objects import Json, mapping, text
from ccm.model.service import Service

SERVICE_KEY, UID_KEY = "kubernetes.io/service-name", "kubernetes.io/service-uid"
CLUSTER_KEY = "kubernetes.io/cluster-id"
CONFIG_MAP = "ingress-uid"  # in kube-system, with the ID of the cluster
MAX_DESCRIPTION = 4096  # characters; Google takes fewer
OWN_NAME = re.compile("a[0-9a-f]{31}")


@dataclass(frozen=True, slots=True)
class Names:
    """Those of one Service in a cluster with this ID."""

    balancer: str
    service_key: str
    uid: str
    cluster_id: str

    @classmethod
    def of(cls, service: Service, cluster_id: str) -> "Names":
        return cls(service.default_balancer_name, service.key, service.uid, cluster_id)

    @property
    def firewall(self) -> str:
        return f"k8s-fw-{self.balancer}"

    @property
    def shared_check(self) -> str:
        """The health check of all Services with the policy Cluster; it asks kube-proxy."""
        return f"k8s-{self.cluster_id}-node"

    def check(self, is_local: bool) -> str:
        return self.balancer if is_local else self.shared_check

    def check_firewall(self, is_local: bool, is_internal: bool) -> str:
        """The rule that admits the probes of a health check."""
        if is_internal:
            return f"{self.check(is_local)}-hc"
        return f"k8s-{self.balancer}-http-hc" if is_local else f"{self.shared_check}-http-hc"

    @property
    def own_firewalls(self) -> tuple[str, ...]:
        """All that the Service may have, and no other."""
        return (self.firewall, *(self.check_firewall(True, kind) for kind in (False, True)))

    @property
    def group(self) -> str:
        """The instance group of each zone; Google's Ingress controller uses it as well."""
        return f"k8s-ig--{self.cluster_id}"

    def backend_service(self, protocol: str, affinity: str, is_shared: bool) -> str:
        """Its own, or one for all internal Services that ask for sharing and agree in these."""
        if not is_shared:
            return self.balancer
        said = "ClientIP" if affinity == "CLIENT_IP" else "None"  # as the Service says it
        digest = hashlib.sha1(said.encode(), usedforsecurity=False).hexdigest()[:16]
        return f"{self.shared_backend_prefix}{protocol.lower()}-nmv1-{digest}"

    @property
    def shared_backend_prefix(self) -> str:
        return f"k8s-{self.cluster_id}-internal-"

    @property
    def description(self) -> str:
        """Whose a part is; upstream compares it."""
        return f'{{"{SERVICE_KEY}":"{self.service_key}"}}'

    @property
    def marked_description(self) -> str:
        """The same with UID and cluster, for parts whose description upstream does not compare."""
        marks = {SERVICE_KEY: self.service_key, UID_KEY: self.uid, CLUSTER_KEY: self.cluster_id}
        return json.dumps(marks, separators=(",", ":"))

    def firewall_description(self, ip: str) -> str:
        return f'{{"{SERVICE_KEY}":"{self.service_key}", "kubernetes.io/service-ip":"{ip}"}}'

    def check_description(self, is_local: bool, is_internal: bool) -> str:
        """Upstream's quirks: external checks are described by their own name."""
        if is_internal:
            return self.description if is_local else ""
        return f'{{"{SERVICE_KEY}":"{self.check(is_local)}"}}'

    def is_own(self, record: Json) -> bool:
        """Whether a part with the Service's name says that it is the Service's."""
        said = described(record)
        is_its = (
            said.get(SERVICE_KEY) == self.service_key and said.get(UID_KEY, self.uid) == self.uid
        )
        return is_its and said.get(CLUSTER_KEY, self.cluster_id) == self.cluster_id


def described(record: Json) -> dict[str, str]:
    """What a part says of whose it is; upstream's have the Service's name alone."""
    try:
        said = mapping(json.loads(text(record.get("description"))[:MAX_DESCRIPTION]))
    except (ValueError, RecursionError):  # anybody in the project may write one
        return {}
    return {key: text(value) for key, value in said.items()}


def derived_cluster_id(cluster: str) -> str:
    """16 hexadecimal digits, as upstream's random ones, that follow from what names the cluster."""
    return hashlib.sha256(cluster.encode()).hexdigest()[:16]
