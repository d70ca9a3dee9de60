"""The Services of the comparison on AWS."""

from dataclasses import replace
from typing import Any

from ccm.providers.aws.elb.annotations import PREFIX
from tests.peers.cases import (
    BOTH,
    DELETED,
    LOCAL,
    NOBODY,
    THEM,
    US,
    Asked,
    Case,
    Cases,
    case,
)

RANGES = {"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"]}


def nlb(first: Asked, later: Asked | None = None, *args: Any, **options: Any) -> Case:
    """The same for a network load balancer."""
    made = case(first, later, *args, **options)
    typed = {"type": "nlb"}
    first_wish = replace(made.first, annotations=typed | dict(made.first.annotations))
    wish = made.later and replace(made.later, annotations=typed | dict(made.later.annotations))
    return replace(made, first=first_wish, later=wish)


ALL: dict[str, Case] = {
    "classic": case({}, then="80,443"),
    "classic-elb": case({"type": "elb"}, then="81"),
    "classic-internal": case({"internal": "true"}, ports="80,443", then="443"),
    "classic-internal-cidr": case({"internal": "0.0.0.0/0"}, {"internal": "false"}),
    "classic-local": case({}, spec=LOCAL, other={"externalTrafficPolicy": "Cluster"}),
    "classic-to-local": case({}, other=LOCAL),
    "classic-ranges": case(
        {}, spec=RANGES, other={"loadBalancerSourceRanges": ["198.51.100.0/24"]}
    ),
    "classic-tls": case({"ssl-cert": "{cert}"}, {"ssl-cert": "{other-cert}"}, ports="443"),
    "classic-tls-http": case(
        {"ssl-cert": "{cert}", "backend-protocol": "http", "ssl-ports": "https"},
        {"ssl-cert": "{cert}", "backend-protocol": "http", "ssl-ports": "443,8443"},
        ports="http=80,https=443",
        then="http=80,https=443,more=8443",
    ),
    "classic-tls-ssl": case({"ssl-cert": "{cert}", "backend-protocol": "ssl"}, {}, ports="443"),
    "classic-tls-policy": case(
        {"ssl-cert": "{cert}", "ssl-negotiation-policy": "ELBSecurityPolicy-TLS-1-2-2017-01"},
        {"ssl-cert": "{cert}", "ssl-negotiation-policy": "ELBSecurityPolicy-2016-08"},
        ports="443",
    ),
    "classic-http": case({"backend-protocol": "http"}, {"backend-protocol": "tcp"}),
    "classic-proxy": case({"proxy-protocol": "*"}, {}, ports="80,443"),
    "classic-to-proxy": case({}, {"proxy-protocol": "*"}),
    "classic-idle": case({"connection-idle-timeout": "120"}, {"connection-idle-timeout": "3600"}),
    "classic-draining": case(
        {"connection-draining-enabled": "true", "connection-draining-timeout": "30"},
        {"connection-draining-enabled": "false"},
    ),
    "classic-logs": case(
        {
            "access-log-enabled": "true",
            "access-log-emit-interval": "5",
            "access-log-s3-bucket-name": "logs",
            "access-log-s3-bucket-prefix": "web",
        },
        {"access-log-enabled": "false"},
    ),
    "classic-cross-zone": case(
        {"cross-zone-load-balancing-enabled": "true"},
        {"cross-zone-load-balancing-enabled": "0"},
    ),
    "classic-tags": case(
        {"additional-resource-tags": "a=1,b=2,c=,d"}, {"additional-resource-tags": "a=3,e=4"}
    ),
    "classic-tags-equals": case({"additional-resource-tags": "a=b=c"}),
    "classic-checks": case(
        {
            "healthcheck-healthy-threshold": "3",
            "healthcheck-unhealthy-threshold": "4",
            "healthcheck-timeout": "3",
            "healthcheck-interval": "15",
        },
        {"healthcheck-interval": "20"},
    ),
    "classic-checks-http": case(
        {
            "healthcheck-protocol": "HTTP",
            "healthcheck-path": "/alive",
            "healthcheck-port": "8081",
        },
        {"healthcheck-protocol": "TCP"},
    ),
    "classic-checks-local": case({"healthcheck-port": "traffic-port"}, spec=LOCAL),
    "classic-checks-bad": case(
        {"healthcheck-interval": "often"}, {}, refused=(BOTH, NOBODY)
    ),
    "classic-extra-groups": case({"extra-security-groups": "{extra}"}, {}),
    "classic-groups": case(
        {"security-groups": "{extra}"}, {"security-groups": "{another},{extra}"}
    ),
    "classic-to-groups": case({}, {"security-groups": "{extra}"}),
    "classic-subnets": case(
        {"subnets": "{public-us-east-1a},{public-us-east-1b}"},
        {"subnets": "{public-us-east-1b},{public-us-east-1c}"},
    ),
    "classic-subnet-names": case({"subnets": "public-us-east-1a"}),
    "classic-labels": case({"target-node-labels": "role=web"}, {"target-node-labels": "role"}),
    "classic-several": case({}, ports="80,443,8080", then="80,8080"),
    "classic-udp": case({}, ports="53/UDP", refused=THEM),
    "classic-no-node-ports": case({}, spec={"allocateLoadBalancerNodePorts": False}, refused=BOTH),
    "classic-affinity": case({}, spec={"sessionAffinity": "ClientIP"}, refused=BOTH),
    "classic-ip": case({}, spec={"loadBalancerIP": "192.0.2.1"}, refused=BOTH),
    "classic-unknown": case({"colour": "blue", "eip-allocations": "eipalloc-1"}),
    "classic-group-attributes": case(
        {"target-group-attributes": "preserve_client_ip.enabled=true"}, {}, refused=(BOTH, "")
    ),
    "classic-proxy-bad": case({"proxy-protocol": "yes"}, {}, refused=(BOTH, "")),
    "classic-no-more": case({}, other={"type": "ClusterIP"}),
    "classic-deleted": case({}, DELETED),
    "classic-to-nlb": case({}, {"type": "nlb"}, refused=("", THEM)),
    "ingress": case(
        {
            "type": "nlb",
            "ssl-cert": "{cert}",
            "ssl-ports": "https",
            "cross-zone-load-balancing-enabled": "true",
            "connection-idle-timeout": "60",
            "backend-protocol": "tcp",
        },
        ports="http=80,https=443",
        spec=LOCAL,
    ),
    "elsewhere": case({"type": "external"}, {"type": "nlb-ip"}, refused=BOTH),
    "class": case({}, spec={"loadBalancerClass": "example.com/other"}, refused=BOTH),
    "nlb": nlb({}, then="80,443"),
    "nlb-moved": nlb({}, then="81"),
    "nlb-internal": nlb({"internal": "true"}, ports="80,443", then="443"),
    "nlb-local": nlb({}, spec=LOCAL, other={"externalTrafficPolicy": "Cluster"}),
    "nlb-local-checks": nlb({"healthcheck-port": "traffic-port"}, spec=LOCAL),
    "nlb-to-local": nlb({}, other=LOCAL),
    "nlb-ranges": nlb({}, spec=RANGES, other={"loadBalancerSourceRanges": ["198.51.100.0/24"]}),
    "nlb-udp": nlb({}, ports="53/UDP", then="53/UDP,54/UDP"),
    "nlb-udp-and-tcp": nlb({}, ports="dns=53/UDP,web=80", refused=THEM),
    "nlb-one-port": nlb({}, ports="udp=53/UDP,tcp=53", refused=BOTH),
    "nlb-tls": nlb({"ssl-cert": "{cert}"}, {"ssl-cert": "{other-cert}"}, ports="443"),
    "nlb-tls-ports": nlb(
        {"ssl-cert": "{cert}", "ssl-ports": "443"},
        {},
        ports="http=80,https=443",
        refused=(NOBODY, THEM),
    ),
    "nlb-tls-ssl": nlb({"ssl-cert": "{cert}", "backend-protocol": "ssl"}, ports="443"),
    "nlb-tls-policy": nlb(
        {"ssl-cert": "{cert}", "ssl-negotiation-policy": "ELBSecurityPolicy-TLS13-1-2-2021-06"},
        {"ssl-cert": "{cert}", "ssl-negotiation-policy": "ELBSecurityPolicy-2016-08"},
        ports="443",
    ),
    "nlb-to-tls": nlb({}, {"ssl-cert": "{cert}"}, ports="443", refused=(NOBODY, THEM)),
    "nlb-cross-zone": nlb({"cross-zone-load-balancing-enabled": "true"}, {}),
    "nlb-logs": nlb(
        {
            "access-log-enabled": "true",
            "access-log-s3-bucket-name": "logs",
            "access-log-s3-bucket-prefix": "web",
        },
        {},
    ),
    "nlb-tags": nlb(
        {"additional-resource-tags": "a=1,b=2,c=,d"}, {"additional-resource-tags": "a=3,e=4"}
    ),
    "nlb-checks": nlb(
        {
            "healthcheck-healthy-threshold": "4",
            "healthcheck-unhealthy-threshold": "4",
            "healthcheck-timeout": "6",
            "healthcheck-interval": "10",
        },
        {"healthcheck-interval": "30"},
    ),
    "nlb-checks-http": nlb(
        {
            "healthcheck-protocol": "HTTP",
            "healthcheck-path": "/alive",
            "healthcheck-port": "8081",
        },
        {"healthcheck-protocol": "TCP"},
    ),
    "nlb-checks-bad": nlb({"healthcheck-interval": "often"}, {}, refused=(BOTH, NOBODY)),
    "nlb-client-ip": nlb(
        {"target-group-attributes": "preserve_client_ip.enabled=false"},
        {"target-group-attributes": "preserve_client_ip.enabled=true"},
    ),
    "nlb-proxy": nlb(
        {"target-group-attributes": "proxy_protocol_v2.enabled=true"},
        {"target-group-attributes": "proxy_protocol_v2.enabled=false"},
    ),
    "nlb-group-attributes-bad": nlb(
        {"target-group-attributes": "colour=blue"}, {}, refused=(BOTH, NOBODY)
    ),
    "nlb-proxy-ignored": nlb({"proxy-protocol": "*"}),
    "nlb-addresses": nlb({"eip-allocations": "{eip-0},{eip-1},{eip-2}"}, {}),
    "nlb-groups": nlb({"security-groups": "{extra}"}, {"security-groups": "{another}"}),
    "nlb-extra-groups": nlb({"extra-security-groups": "{extra}"}, {}, refused=(BOTH, NOBODY)),
    "nlb-subnets": nlb(
        {"subnets": "{public-us-east-1a},{public-us-east-1b}"},
        {"subnets": "{public-us-east-1b},{public-us-east-1c}"},
    ),
    "nlb-subnet-names": nlb({"subnets": "public-us-east-1a"}),
    "nlb-labels": nlb({"target-node-labels": "role=web"}, {"target-node-labels": "role"}),
    "nlb-several": nlb({}, ports="80,443,8080", then="80,8080"),
    "nlb-no-node-ports": nlb({}, spec={"allocateLoadBalancerNodePorts": False}, refused=US),
    "nlb-affinity": nlb({}, spec={"sessionAffinity": "ClientIP"}, refused=BOTH),
    "nlb-unknown": nlb({"colour": "blue", "connection-idle-timeout": "60"}),
    "nlb-lb-controller": nlb(
        {"scheme": "internal", "attributes": "deletion_protection.enabled=false"}, {}
    ),
    "nlb-no-more": nlb({}, other={"type": "ClusterIP"}),
    "nlb-deleted": nlb({}, DELETED),
    "nlb-to-classic": case({"type": "nlb"}, {}, refused=("", THEM)),
}  # fmt: skip

CASES = Cases(ALL, PREFIX)
