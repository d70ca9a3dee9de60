"""Records as DigitalOcean's contract has them."""

from typing import Any

Json = dict[str, Any]
CREATED = "2026-08-07T12:00:00Z"


def region(slug: str) -> Json:
    return {"name": slug.upper(), "slug": slug, "sizes": [], "features": [], "available": True}


def droplet(number: int, name: str, slug: str, vpc_id: str) -> Json:
    """One that is on."""
    high, low = divmod(number % 60_000, 250)
    return {
        "id": number,
        "name": name,
        "memory": 2048,
        "vcpus": 2,
        "disk": 60,
        "locked": False,
        "status": "active",
        "created_at": CREATED,
        "features": ["private_networking"],
        "backup_ids": [],
        "next_backup_window": None,
        "snapshot_ids": [],
        "image": {"id": 1, "name": "24.04 x64", "distribution": "Ubuntu"},
        "volume_ids": [],
        "size": {
            "slug": "s-2vcpu-2gb",
            "memory": 2048,
            "vcpus": 2,
            "disk": 60,
            "transfer": 3.0,
            "price_monthly": 18.0,
            "price_hourly": 0.02679,
            "regions": [slug],
            "available": True,
            "description": "Basic",
        },
        "size_slug": "s-2vcpu-2gb",
        "networks": networks(f"10.108.{high}.{low + 1}", f"192.0.{high}.{low + 1}"),
        "region": region(slug),
        "tags": [],
        "vpc_uuid": vpc_id,
    }


def networks(private: str = "", public: str = "", ipv6: str = "") -> Json:
    """Of a droplet; empty for one that it has not."""
    v4 = [
        {"ip_address": one, "netmask": "255.255.0.0", "gateway": "10.0.0.1", "type": kind}
        for one, kind in ((public, "public"), (private, "private"))
        if one
    ]
    v6 = [{"ip_address": ipv6, "netmask": 64, "gateway": "2604:a880::1", "type": "public"}]
    return {"v4": v4, "v6": v6 if ipv6 else []}


def load_balancer(balancer_id: str, body: Json, address: str) -> Json:
    """The record of one that was asked for so."""
    sizes = {"lb-small": 1, "lb-medium": 3, "lb-large": 6}
    size = body.get("size")
    record = {
        "id": balancer_id,
        "ip": address,
        "ipv6": "",
        "status": "new",
        "created_at": CREATED,
        "size_unit": sizes[size] if size else 1,
        "type": "REGIONAL",
        "network": "EXTERNAL",
        "network_stack": "IPV4",
        "algorithm": "round_robin",
        "sticky_sessions": {"type": "none"},
        "redirect_http_to_https": False,
        "enable_proxy_protocol": False,
        "enable_backend_keepalive": False,
        "disable_lets_encrypt_dns_records": False,
        "http_idle_timeout_seconds": 60,
        "vpc_uuid": "760e09ef-dc84-11e8-981e-3cfdfeaae000",
        "project_id": "4de7ac8b-495b-4884-9a69-1050c6793cd6",
        "tag": "",
        "tags": [],
        "droplet_ids": [],
        "firewall": {"deny": [], "allow": []},
        **{key: value for key, value in body.items() if key not in ("size", "ip")},
    }
    record["region"] = region(body["region"])
    record["forwarding_rules"] = [
        {"certificate_id": "", "tls_passthrough": False, **rule}
        for rule in record.get("forwarding_rules", ())
    ]
    return record


def volume(volume_id: str, slug: str) -> Json:
    return {"id": volume_id, "name": "pvc-1", "region": region(slug), "size_gigabytes": 1}


def vpc(vpc_id: str, slug: str) -> Json:
    return {
        "id": vpc_id,
        "name": "cluster",
        "region": slug,
        "ip_range": "10.108.0.0/20",
        "description": "",
        "default": False,
        "urn": f"do:vpc:{vpc_id}",
        "created_at": CREATED,
    }


def error(kind: str, message: str) -> Json:
    return {"id": kind, "message": message, "request_id": "4851a473-1621-42ea-b2f9-5071c0ea8414"}
