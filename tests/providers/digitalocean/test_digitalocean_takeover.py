"""Upstream's load balancers are taken over without a write, whatever its Services ask for.

The bodies are what upstream 0.1.68 sends for such Services; the server keeps them as they are.
"""

from typing import Any

import pytest

from ccm.cloud.testkit.harness import port, service
from ccm.errors import Refused
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.digitalocean.lb.annotations import BALANCER_ID, PREFIX
from tests.labs.digitalocean.server import VPC, DigitalOcean
from tests.providers.digitalocean.adapter import config_of
from tests.providers.digitalocean.conftest import Started, host

CERTIFICATE = "892071a0-bb95-49bc-8021-3afd67a210bf"
CHECK: Json = {
    "protocol": "http",
    "port": 10256,
    "path": "/healthz",
    "check_interval_seconds": 3,
    "response_timeout_seconds": 5,
    "healthy_threshold": 5,
    "unhealthy_threshold": 3,
    "proxy_protocol": False,
}


def rule(entry: str, number: int, target: str, to: int, **more: Any) -> Json:
    return {
        "entry_protocol": entry,
        "entry_port": number,
        "target_protocol": target,
        "target_port": to,
        **more,
    }


def body(kind: str, *rules: Json, **more: Any) -> Json:
    """What upstream sends; it leaves out what is false or empty."""
    return {
        "algorithm": "round_robin",
        "region": "nyc3",
        "type": kind,
        "forwarding_rules": list(rules),
        "health_check": CHECK,
        "sticky_sessions": {"type": "none"},
        "disable_lets_encrypt_dns_records": False,
        "firewall": {},
        "network": "EXTERNAL",
        "network_stack": "DUALSTACK" if kind == "REGIONAL" else "IPV4",
        "tags": ["k8s:f0b2"],
        "vpc_uuid": VPC,
        **more,
    }


PLAIN = body("REGIONAL_NETWORK", rule("tcp", 80, "tcp", 80))
CASES: dict[str, tuple[dict[str, str], Json, Json]] = {
    "plain": ({}, {}, PLAIN),
    "no type said, as before 0.1.61": ({}, {}, body("REGIONAL", rule("tcp", 80, "tcp", 30080))),
    "local": (
        {},
        {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000},
        PLAIN | {"health_check": CHECK | {"port": 32000}},
    ),
    "udp": (
        {},
        {"ports": [port(53, "UDP", 30053), port(53, "TCP", 30053)]},
        body("REGIONAL_NETWORK", rule("udp", 53, "udp", 53), rule("tcp", 53, "tcp", 53)),
    ),
    "ranges": (
        {},
        {"loadBalancerSourceRanges": ["192.0.2.7/24"]},
        PLAIN | {"firewall": {"allow": ["cidr:192.0.2.0/24"]}},
    ),
    "rules": (
        {"deny-rules": "ip:192.0.2.9, cidr:198.51.100.0/24"},
        {},
        PLAIN | {"firewall": {"deny": ["ip:192.0.2.9", "cidr:198.51.100.0/24"]}},
    ),
    "https": (
        {"type": "REGIONAL", "protocol": "http", "certificate-id": CERTIFICATE},
        {"ports": [port(80), port(443, node_port=30443)]},
        body(
            "REGIONAL",
            rule("http", 80, "http", 30080),
            rule("https", 443, "http", 30443, certificate_id=CERTIFICATE),
        ),
    ),
    "passthrough": (
        {"type": "REGIONAL", "tls-passthrough": "true", "tls-ports": "443"},
        {"ports": [port(443, node_port=30443)]},
        body("REGIONAL", rule("https", 443, "https", 30443, tls_passthrough=True)),
    ),
    "proxy protocol": (
        {"type": "REGIONAL", "enable-proxy-protocol": "true"},
        {},
        body("REGIONAL", rule("tcp", 80, "tcp", 30080), enable_proxy_protocol=True),
    ),
    "own check": (
        {
            "type": "REGIONAL",
            "override-health-check": "true",
            "healthcheck-path": "/up",
            "healthcheck-unhealthy-threshold": "4",
        },
        {},
        body(
            "REGIONAL",
            rule("tcp", 80, "tcp", 30080),
            health_check={
                **{key: value for key, value in CHECK.items() if key != "proxy_protocol"},
                "port": 30080,
                "path": "/up",
                "unhealthy_threshold": 4,
            },
        ),
    ),
    "own check by tcp": (
        {"type": "REGIONAL", "override-health-check": ""},
        {},
        body(
            "REGIONAL",
            rule("tcp", 80, "tcp", 30080),
            health_check={
                **{k: v for k, v in CHECK.items() if k not in ("proxy_protocol", "path")},
                "protocol": "tcp",
                "port": 30080,
            },
        ),
    ),
    "sticky": (
        {
            "type": "REGIONAL",
            "protocol": "http",
            "sticky-sessions-type": "cookies",
            "sticky-sessions-cookie-name": "DO-LB",
            "sticky-sessions-cookie-ttl": "300",
        },
        {},
        body(
            "REGIONAL",
            rule("http", 80, "http", 30080),
            sticky_sessions={
                "type": "cookies",
                "cookie_name": "DO-LB",
                "cookie_ttl_seconds": 300,
            },
        ),
    ),
    "size": ({"size-slug": "lb-large"}, {}, PLAIN | {"size": "lb-large"}),
    "idle": (
        {"type": "REGIONAL", "http-idle-timeout-seconds": "90"},
        {},
        body("REGIONAL", rule("tcp", 80, "tcp", 30080), http_idle_timeout_seconds=90),
    ),
}


def published(record: Json, annotations: dict[str, str], spec: Json, entry: Json) -> Service:
    """The Service as upstream leaves it: with the ID, and its address or host name."""
    named = {PREFIX + key: value for key, value in annotations.items()}
    made = service("web", named | {BALANCER_ID: record["id"]}, **spec)
    made.raw["status"] = {"loadBalancer": {"ingress": [entry]}}
    return made


@pytest.mark.parametrize("case", CASES)
async def test_upstreams_load_balancer_stays_as_it_is(do: DigitalOcean, case: str) -> None:
    """DO43: with its name, or one by annotation."""
    annotations, spec, sent = CASES[case]
    worker = do.add_droplet("worker")
    for name in ("", "front"):
        do.balancers.clear()
        named = annotations | ({"name": name} if name else {})
        record = do.add_balancer(
            **sent, name=name or service("web").default_balancer_name, droplet_ids=[worker["id"]]
        )
        before = dict(record)
        asked = published(record, named, spec, {"ip": record["ip"]})
        cloud = await Started(config_of(do, "cluster-id = f0b2", f"vpc-id = {VPC}")).start()
        found = await cloud.ensure(asked, host(worker))
        assert found.ingress[0].ip == record["ip"]
        assert (do.writes(), do.balancers) == ([], {record["id"]: before})


async def test_one_with_a_host_name_and_a_name_waits_for_its_owner(do: DigitalOcean) -> None:
    """Nothing but annotations says whose it is; who may change the cloud renames it."""
    worker = do.add_droplet("worker")
    record = do.add_balancer(**PLAIN, name="front", droplet_ids=[worker["id"]])
    annotations = {"name": "front", "hostname": "front.example.com"}
    asked = published(record, annotations, {}, {"hostname": "front.example.com"})
    cloud = await Started(config_of(do, "cluster-id = f0b2")).start()
    with pytest.raises(Refused, match=f"rename it to {asked.default_balancer_name}"):
        await cloud.ensure(asked, host(worker))
    record["name"] = asked.default_balancer_name
    assert (await cloud.ensure(asked, host(worker))).ingress[0].hostname == "front.example.com"
