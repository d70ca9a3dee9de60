"""What can be seen of a world, by path: two worlds look the same when their pictures are equal."""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import chain

from tests.peers.world import EVENTS, NODES, SERVICES, Seen, World
from tests.support.kube.cluster import ITS_EVENTS

Picture = dict[str, str]
ENDS = ("Normal EnsuredLoadBalancer", "Warning SyncLoadBalancerFailed")
"""How an attempt ends: the last one counts, because those before it may have met each other."""
IN_TIME = {"Normal UpdatedLoadBalancer", "Warning UpdateLoadBalancerFailed"}
"""Events that tell in which order a Service and a node came, and nothing else."""


def picture(world: World) -> Picture:
    """Every field that a controller may write, with roles for IDs."""
    rename = renamer(world)
    found: Picture = {}
    for path, value in chain(_nodes(world), _services(world), world.seen()):
        text = rename(json.dumps([*value] if isinstance(value, set) else value, sort_keys=True))
        is_sorted = isinstance(value, set)
        found[rename(path)] = json.dumps(sorted(json.loads(text))) if is_sorted else text
    return found


def renamer(world: World) -> Callable[[str], str]:
    """What puts roles in the place of IDs that differ from run to run."""
    roles = {identifier: role for role, identifier in world.names.items()} | dict(world.roles())
    roles |= {uid: f"uid-of-{name}" for name, uid in world.uids.items()}
    longest_first = sorted(filter(None, roles), key=len, reverse=True)
    # The address 10.0.0.1 does not stand in 10.0.0.12.
    form = re.compile(rf"(?<![\d.])(?:{'|'.join(map(re.escape, longest_first))})(?!\d)")

    def rename(text: str) -> str:
        while (done := form.sub(lambda match: roles[match[0]], text)) != text:
            text = done
        return text

    return rename


def _nodes(world: World) -> Seen:
    events = _events(world, "Node")
    shapes = {name: shape for shape, name in world.nodes.items()}
    for node in world.request("GET", NODES)["items"]:
        shape, spec = shapes[node["metadata"]["name"]], node["spec"]
        at = f"node {shape}"
        for key, value in node["metadata"]["labels"].items():
            yield f"{at} label {key}", value
        yield f"{at} provider ID", spec.get("providerID")
        yield f"{at} taints", sorted(taint["key"] for taint in spec.get("taints", ()))
        yield f"{at} addresses", node["status"].get("addresses")
        for condition in node["status"]["conditions"]:
            if condition["type"] == "NetworkUnavailable":
                yield f"{at} network condition", [condition["status"], condition["reason"]]
        yield f"{at} events", set(events[node["metadata"]["name"]])


def _services(world: World) -> Seen:
    events = _events(world, "Service")
    for one in world.request("GET", SERVICES)["items"]:
        name = one["metadata"]["name"]
        if name not in world.cases.chosen:
            continue
        at = f"service {name}"
        yield f"{at} ingress", one["status"]["loadBalancer"].get("ingress")
        yield f"{at} conditions", one["status"].get("conditions")
        yield f"{at} finalizers", one["metadata"].get("finalizers")
        for key, value in one["metadata"].get("annotations", {}).items():
            yield f"{at} annotation {key}", value
        reported = [event for event in events[name] if event not in ENDS]
        yield f"{at} events", {*reported} - IN_TIME
        yield f"{at} outcome", next((event for event in events[name][::-1] if event in ENDS), None)


def _events(world: World, kind: str) -> dict[str, list[str]]:
    """By name, type and reason of all that a controller tells of a kind, the last one last."""
    found: dict[str, list[str]] = defaultdict(list)
    listed = world.request("GET", EVENTS)["items"]
    for event in sorted(listed, key=lambda one: int(one["metadata"]["resourceVersion"])):
        is_reported = event.get("reportingComponent") != ITS_EVENTS
        if event["involvedObject"]["kind"] == kind and is_reported:
            found[event["involvedObject"]["name"]].append(f"{event['type']} {event['reason']}")
    return found
