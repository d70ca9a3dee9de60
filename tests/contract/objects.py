"""The objects that cases create, as small as the server allows."""

from typing import Any

from tests.contract.client import SERVICES, VOLUMES, Api, Reply

TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
FINALIZER = "example.com/hold"
OTHER_FINALIZER = "example.com/other"


async def new_service(api: Api, **spec: Any) -> Reply:
    spec.setdefault("ports", [{"port": 80}])
    return await api.new(SERVICES, spec=spec)


async def new_balancer(api: Api, **spec: Any) -> Reply:
    return await new_service(api, type="LoadBalancer", **spec)


async def new_volume(api: Api, **spec: Any) -> Reply:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "example.com", "volumeHandle": "vol-1"},
        **spec,
    }
    return await api.new(VOLUMES, spec=spec)


def address(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "address": value}


def addresses_of(reply: Reply) -> list[tuple[str, str]]:
    return [(each["type"], each["address"]) for each in reply.body["status"].get("addresses", [])]


def zone_affinity(zone: str) -> dict[str, Any]:
    wanted = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
