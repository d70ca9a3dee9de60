"""The Services of the comparison on Azure."""

from ccm.providers.azure.lb.annotations import PORT_PREFIX, PREFIX
from tests.labs.azure.lab import OTHER_GROUP, SUBNET
from tests.peers.cases import BOTH, DELETED, LOCAL, Case, Cases, case

INNER = {"load-balancer-internal": "true"}
ON_SUBNET = INNER | {"load-balancer-internal-subnet": SUBNET}
CLUSTER = {"externalTrafficPolicy": "Cluster"}
RANGES = {"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}
OTHER_RANGES = {"loadBalancerSourceRanges": ["203.0.113.0/24"]}
STICKY, FREE = {"sessionAffinity": "ClientIP"}, {"sessionAffinity": "None"}
DENIES = {"deny-all-except-load-balancer-source-ranges": "true"}
HTTP = {"load-balancer-health-probe-protocol": "http"}
PROBE = HTTP | {
    "load-balancer-health-probe-interval": "9",
    "load-balancer-health-probe-num-of-probe": "3",
    "load-balancer-health-probe-request-path": "/ready",
}
OF_PORT = {
    f"{PORT_PREFIX}80_health-probe_protocol": "http",
    f"{PORT_PREFIX}80_health-probe_interval": "7",
    f"{PORT_PREFIX}443_no_probe_rule": "true",
}

ALL: dict[str, Case] = {
    "plain": case({}, then="80,443"),
    "ports": case({}, ports="80,443,8000", then="443"),
    "udp": case({}, ports="53/UDP"),
    "udp-and-tcp": case({}, ports="udp=53/UDP,tcp=53", then="udp=53/UDP"),
    "local": case({}, spec=LOCAL, other=CLUSTER),
    "to-local": case({}, other=LOCAL),
    "affinity": case({}, spec=STICKY, other=FREE),
    "to-affinity": case({}, other=STICKY),
    "ranges": case({}, spec=RANGES, other=OTHER_RANGES),
    "ranges-too": case({}, spec=RANGES),
    "ranges-cleared": case({}, spec=RANGES, other={"loadBalancerSourceRanges": None}),
    "ranges-annotated": case(
        {"service.beta.kubernetes.io/load-balancer-source-ranges": "192.0.2.0/25"}
    ),
    "allowed-ranges": case({"allowed-ip-ranges": "192.0.2.0/24,192.0.3.0/24"}, {}),
    "service-tags": case(
        {"allowed-service-tags": "AzureCloud,Storage"}, {"allowed-service-tags": "Storage"}
    ),
    "denied": case(DENIES, {}, spec=RANGES),
    "to-denied": case({}, DENIES, spec=RANGES),
    "without-group": case({"disable-load-balancer-nsg-rule": "true"}, {}),
    "timeout": case(
        {"load-balancer-tcp-idle-timeout": "15"}, {"load-balancer-tcp-idle-timeout": "30"}
    ),
    "wrong-timeout": case({"load-balancer-tcp-idle-timeout": "3"}, refused=BOTH),
    "without-reset": case({"load-balancer-disable-tcp-reset": "true"}, {}),
    "http-probe": case(HTTP, {}),
    "probe": case(PROBE, PROBE | {"load-balancer-health-probe-interval": "20"}),
    "wrong-probe": case({"load-balancer-health-probe-interval": "3"}, refused=BOTH),
    "probe-of-port": case(OF_PORT, {}, ports="80,443"),
    "without-rule": case({f"{PORT_PREFIX}443_no_lb_rule": "true"}, ports="80,443"),
    "app-protocol": case(PROBE, {}, ports="80"),
    "without-floating": case({"disable-load-balancer-floating-ip": "true"}, {}),
    "label": case({"dns-label-name": "peers-label"}, {"dns-label-name": "other-label"}),
    "label-cleared": case({"dns-label-name": "peers-cleared"}, {"dns-label-name": ""}),
    "address-tags": case({"pip-tags": "team=blue"}, {"pip-tags": "team=red,floor=2"}),
    "own-address": case({"pip-name": "by-hand"}),
    "to-own-address": case({}, {"pip-name": "by-hand-too"}),
    "absent-address": case({"pip-name": "nowhere"}, refused=BOTH),
    "given-address": case({}, spec={"loadBalancerIP": "{spare-address}"}),
    "other-group": case({"load-balancer-resource-group": OTHER_GROUP}),
    "class": case({}, spec={"loadBalancerClass": "example.com/other"}, refused=BOTH),
    "deleted": case({}, DELETED),
    "cluster-ip": case({}, other={"type": "ClusterIP"}),
    "inner": case(INNER, then="80,443"),
    "inner-subnet": case(ON_SUBNET),
    "inner-to-subnet": case(INNER, ON_SUBNET),
    "inner-local": case(INNER, spec=LOCAL),
    "inner-given": case(INNER | {"load-balancer-ipv4": "10.224.9.9"}),
    "inner-ha": case(
        INNER | {"load-balancer-enable-high-availability-ports": "true"}, ports="80,443"
    ),
    "inner-ranges": case(INNER, spec=RANGES, other=OTHER_RANGES),
    "inner-to-outer": case(INNER, {}),
    "outer-to-inner": case({}, INNER),
    "inner-deleted": case(INNER, DELETED),
    "without-effect": case({"load-balancer-mode": "__auto__", "colour": "blue"}),
}
CASES = Cases(ALL, PREFIX)
