"""The Services of the comparison on GCE."""

from ccm.providers.gce.lb.request import (
    BACKEND_SERVICES,
    GLOBAL_ACCESS,
    OLD_TYPE,
    SHARE,
    SUBNET,
    TIER,
    TYPE,
)
from tests.peers.cases import BOTH, DELETED, LOCAL, Case, Cases, case

INNER = {TYPE: "Internal"}
CLUSTER = {"externalTrafficPolicy": "Cluster"}
RANGES = {"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"]}
OTHER_RANGES = {"loadBalancerSourceRanges": ["198.51.100.0/24"]}
STICKY, FREE = {"sessionAffinity": "ClientIP"}, {"sessionAffinity": "None"}
SHARED = INNER | {SHARE: "true"}

ALL: dict[str, Case] = {
    "plain": case({}, then="80,443"),
    "ports": case({}, ports="80,81,8000", then="80"),
    "udp": case({}, ports="53/UDP"),
    "udp-and-tcp": case({}, ports="udp=53/UDP,tcp=53", refused=BOTH),
    "local": case({}, spec=LOCAL, other=CLUSTER),
    "to-local": case({}, other=LOCAL),
    "local-ports": case({}, spec=LOCAL, then="80,443"),
    "affinity": case({}, spec=STICKY, other=FREE),
    "to-affinity": case({}, other=STICKY),
    "ranges": case({}, spec=RANGES, other=OTHER_RANGES),
    "ranges-cleared": case({}, spec=RANGES, other={"loadBalancerSourceRanges": None}),
    "standard": case({TIER: "Standard"}),
    "to-standard": case({}, {TIER: "Standard"}),
    "from-standard": case({TIER: "Standard"}, {TIER: "Premium"}),
    "standard-cleared": case({TIER: "Standard"}, {}),
    "wrong-tier": case({TIER: "Gold"}, refused=BOTH),
    "given-address": case({}, spec={"loadBalancerIP": "{spare-address}"}),
    "unreserved": case({}, spec={"loadBalancerIP": "198.18.200.200"}, refused=BOTH),
    "backend-services": case({BACKEND_SERVICES: "enabled"}, refused=BOTH),
    "class": case({}, spec={"loadBalancerClass": "example.com/other"}, refused=BOTH),
    "no-node-ports": case({}, spec={"allocateLoadBalancerNodePorts": False}),
    "deleted": case({}, DELETED),
    "cluster-ip": case({}, other={"type": "ClusterIP"}),
    "inner": case(INNER, then="80,443"),
    "inner-old-key": case({OLD_TYPE: "Internal"}),
    "inner-udp": case(INNER, ports="53/UDP"),
    "inner-six-ports": case(INNER, ports="80,81,82,83,84", then="80,81,82,83,84,85"),
    "inner-local": case(INNER, spec=LOCAL, other=CLUSTER),
    "inner-to-local": case(INNER, other=LOCAL),
    "inner-affinity": case(INNER, spec=STICKY, other=FREE),
    "inner-ranges": case(INNER, spec=RANGES, other=OTHER_RANGES),
    "inner-global": case(INNER | {GLOBAL_ACCESS: "true"}, INNER),
    "inner-to-global": case(INNER, INNER | {GLOBAL_ACCESS: "true"}),
    "inner-subnet": case(INNER | {SUBNET: "default"}),
    "inner-given": case(INNER, spec={"loadBalancerIP": "10.132.9.9"}),
    "inner-shared": case(SHARED),
    "inner-shared-too": case(SHARED, INNER),
    "inner-to-outer": case(INNER, {}),
    "outer-to-inner": case({}, INNER),
    "inner-deleted": case(INNER, DELETED),
    "without-effect": case({GLOBAL_ACCESS: "true", SUBNET: "default"}),
}
CASES = Cases(ALL, "")
