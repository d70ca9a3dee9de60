"""Routes: nodes with pod networks, from ready to the last route."""

import time

from bench.figures import Row
from bench.parts.services import ROOM
from bench.plan import Measured, Plan
from bench.processes import Cost
from bench.site import Controller, Site, site, until_so

FLAGS = ("--cluster-cidr=10.128.0.0/9",)


async def measure(plan: Plan) -> Measured:
    rows: list[Row] = []
    broken: list[str] = []
    async with site(plan, "--parameter", f"max_routes={ROOM}") as place:
        for number in plan.sizes:
            row = await _routed(place, number)
            rows.append(row)
            if row["routes made"] != number:
                broken.append(f"{row['routes made']} routes were made for {number} nodes")
            await place.clear()
    return Measured(rows, broken)


async def _routed(place: Site, number: int) -> Row:
    """Everything from the start of the process, with nodes to initialise as well."""
    await place.add_nodes(number, has_pod_network=True)
    await place.count_again()
    began = time.monotonic()
    with Controller(place, *FLAGS) as controller:
        ready = await place.spectator.until_ready(number) - began

        async def are_made() -> bool:
            return (await place.cloud_calls())["CreateRoute"] >= number

        await until_so("every route was made", are_made)
        routed = time.monotonic() - began
        await controller.until_reported()
        calls, writes = await place.cloud_calls(), place.writes()
        return {
            "nodes": number,
            "s to ready": ready,
            "s to the last route": routed,
            "routes made": calls["CreateRoute"],
            "lists": calls["ListRoutes"],
            "writes to nodes": writes["nodes"] + writes["nodes/status"],
            "CPU ms a node": Cost.of(controller.pid).cpu * 1000 / number,
        }
