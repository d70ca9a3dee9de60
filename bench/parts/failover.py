"""Orderly fail-over to a warm standby: how long no one leads, and what the cloud notices of it."""

import asyncio
import signal
import time
from datetime import datetime

from bench.figures import Row, spread
from bench.parts.services import add_services
from bench.plan import Measured, Plan
from bench.site import LEASES, Controller, Site, crowd, site, until

SERVICES = 50
AFTER = 5.0  # seconds in which a new leader would do what it thinks has to be done


async def measure(plan: Plan) -> Measured:
    runs: list[dict[str, float]] = []
    for _ in range(plan.repeats):
        async with site(plan) as place:
            runs.append(await _once(place))
    row: Row = {"nodes": plan.most, "balancers": SERVICES}
    row |= {name: spread([run[name] for run in runs]) for name in runs[0]}
    writes = sum(run["cloud writes"] for run in runs)
    return Measured([row], [f"{writes:g} cloud writes by a fail-over"] if writes else [])


async def _once(place: Site) -> dict[str, float]:
    async with crowd(place, place.plan.most) as leader:
        await add_services(place, SERVICES)
        with Controller(place) as standby:
            await until("the standby is warm", lambda: standby.is_in("standby"))
            await place.count_again()
            began = time.monotonic()
            leader.process.send_signal(signal.SIGTERM)
            await until("the standby leads", lambda: standby.is_in("running"))
            seconds = time.monotonic() - began
            await asyncio.sleep(AFTER)
            writes = await place.cloud_writes()
            gap = await without_leader(place)
            await asyncio.to_thread(leader.end)
    return {
        "s from SIGTERM to running": seconds,
        "s without a leader": gap,
        "cloud writes": float(writes),
        "Kubernetes writes": float(sum(place.writes().values())),
    }


async def without_leader(place: Site) -> float:
    """From the answer to the release of the Lease to when the new holder says that it took it."""
    lease = await place.kube.get(f"{LEASES}/cloud-controller-manager")
    taken = datetime.fromisoformat(lease["spec"]["acquireTime"]).timestamp()
    writes = [entry for entry in place.requests() if entry.resource == "leases" and entry.is_write]
    answered = [entry.answered_at for entry in writes]
    return taken - max(at for at in answered if at < taken)
