"""The Services of the comparison on OpenStack."""

from ccm.providers.openstack.lb.annotations import INTERNAL, PREFIX
from tests.peers.cases import BOTH, DELETED, LOCAL, NOBODY, THEM, US, Case, Cases, case

RANGES = {"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"]}
MIXED = {"loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/64"]}
STICKY = {"sessionAffinity": "ClientIP"}
TIMEOUTS = {
    "connection-limit": "100",
    "timeout-client-data": "60000",
    "timeout-member-data": "70000",
    "timeout-member-connect": "6000",
    "timeout-tcp-inspect": "5",
}
MONITOR = {
    "enable-health-monitor": "true",
    "health-monitor-delay": "10",
    "health-monitor-timeout": "5",
    "health-monitor-max-retries": "2",
    "health-monitor-max-retries-down": "4",
}

ALL: dict[str, Case] = {
    "plain": case({}, then="80,443"),
    "internal": case({INTERNAL: "true"}, {}),
    "to-internal": case({}, {INTERNAL: "true"}),
    "local": case({}, spec=LOCAL, other={"externalTrafficPolicy": "Cluster"}),
    "monitor": case(MONITOR, {**MONITOR, "health-monitor-delay": "20"}),
    "monitor-off": case(MONITOR, {}),
    "udp-and-tcp": case({}, ports="udp=53/UDP,tcp=53", then="udp=53/UDP"),
    "proxy": case({"proxy-protocol": "true"}, {"proxy-protocol": "v2"}),
    "forwarded": case({"x-forwarded-for": "true"}),
    "proxy-and-forwarded": case(
        {"proxy-protocol": "true", "x-forwarded-for": "true"}, {}, refused=(BOTH, NOBODY)
    ),
    "affinity": case({}, spec=STICKY, other={"sessionAffinity": "None"}),
    "ranges": case({}, spec=RANGES, other={"loadBalancerSourceRanges": ["198.51.100.0/24"]}),
    "mixed-ranges": case({}, spec=MIXED, refused=THEM),
    "limits": case(TIMEOUTS, {**TIMEOUTS, "lb-method": "SOURCE_IP", "connection-limit": "-1"}),
    "wrong": case({"connection-limit": "many", "proxy-protocol": "v3", "colour": "blue"}),
    "given-address": case({}, spec={"loadBalancerIP": "{spare-address}"}),
    "keeps-address": case({"keep-floatingip": "true"}, DELETED),
    "class": case({"class": "special"}),
    "class-unknown": case({"class": "none"}, {}, refused=(BOTH, NOBODY)),
    "member-subnet": case({"member-subnet-id": "{subnet-other}"}),
    "dual-stack": case(
        {"subnet-id": "{subnet-dual-4}"}, spec={"ipFamilyPolicy": "PreferDualStack"}
    ),
    "selector": case({"node-selector": "role=web"}, {"node-selector": "role"}),
    "host": case({"hostname": "www.example.com"}),
    "no-node-ports": case({}, spec={"allocateLoadBalancerNodePorts": False}, refused=US),
    "by-hand": case({"load-balancer-id": "{by-hand}"}),
    "by-hand-inner": case({"load-balancer-id": "{by-hand-inner}"}, refused=THEM, spoilt_by=THEM),
    "deleted": case({}, DELETED),
    "no-more": case({}, other={"type": "ClusterIP"}),
}

CASES = Cases(ALL, PREFIX)
