"""10,000 Services of 100 tenants: what a start and a joining node cost, and one tenant's storm.

Of each calm tenant a new Service is timed by the audit log, from the answer to its creation to the
request that writes its address: first while nothing else happens, then while one tenant changes the
ports of all its Services as fast as the API server lets it, each by one client. What of that is the
API server's own is timed in the same way without a controller: a bare client sends the same two
writes a Service.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count, cycle

from bench.figures import Row, percentile
from bench.nodes import AT_ONCE, each
from bench.parts.many import Report
from bench.parts.services import Watch, join
from bench.plan import Measured, Plan
from bench.processes import Cost
from bench.site import Site, crowd, site, until_so
from ccm.kube import config
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.model.service import FINALIZER
from ccm.sandbox.workload import SERVICE

SERVICES = 10_000  # unless the command line says how many
TENANTS = 100
NODES = 100
ROUNDS = 3  # new Services of each calm tenant
PACE = 0.1  # seconds between two of them
ALLOWED = 2.0  # the others' p99 during the storm, over that before it
STORM = "tenant-1"


async def measure(plan: Plan) -> Measured:
    number = SERVICES if plan.services == Plan().services else plan.services
    plan = replace(plan, services=number, sizes=(NODES,))
    report = Report(NODES)
    room = number + 2 * ROUNDS * TENANTS
    async with (
        site(plan, "--parameter", f"max_load_balancers={room}") as place,
        crowd(place, NODES) as controller,
    ):
        watch = Watch(place, controller, NODES)
        _add(report, await watch.row("Services made", lambda: _fill(place, number)))
        report.add("PSS of all processes, MiB", Cost.of(controller.pid).pss)
        _add(report, await watch.row("a node joins", lambda: join(place, f"vm-{NODES + 1}")))
        calm = await _timed(place, "calm")
        storm, changes = await _in_a_storm(place, number // TENANTS)
        _add(report, await watch.started_again())
        calm_alone = await _timed(place, "calm-alone", _serve)
        storm_alone, _ = await _in_a_storm(place, number // TENANTS, "storm-alone", _serve)
    report.add("changes of the storm", changes)
    ratio = _compare(report, "a new Service", calm, storm)
    _compare(report, "API server alone", calm_alone, storm_alone)
    if ratio > ALLOWED:
        report.broken.append(
            f"one tenant's storm: the others' p99 is {ratio:.2g} times that of before"
        )
    return Measured(report.rows, report.broken)


def _compare(report: Report, what: str, calm: list[float], storm: list[float]) -> float:
    for name, delays in (("calm", calm), ("storm", storm)):
        for part in (0.5, 0.99):
            report.add(f"{what}, {name}, p{part * 100:g} s", percentile(delays, part))
    ratio = percentile(storm, 0.99) / percentile(calm, 0.99)
    report.add(f"{what}, p99 in the storm over calm", ratio)
    return ratio


def _add(report: Report, row: Row) -> None:
    for column in ("s", "cloud writes", "cloud reads", "CPU s"):
        report.add(f"{row['what']}: {column}", row[column])


async def _fill(place: Site, number: int) -> None:
    """The same number of Services for each tenant, and until all of them have an address."""
    tenants = [f"tenant-{index}" for index in range(1, TENANTS + 1)]
    await each(
        ({"metadata": {"name": tenant}} for tenant in tenants),
        lambda namespace: place.kube.post("/api/v1/namespaces", namespace),
    )
    names = [f"web-{index}" for index in range(1, number // TENANTS + 1)]
    await each(
        (_service(tenant, name) for name in names for tenant in tenants),
        lambda service: place.kube.post(_path(service["metadata"]["namespace"]), service),
    )


async def _leave_alone(_place: Site, _service: Json) -> None:
    """What a client does with its new Service where a controller serves it."""


async def _serve(place: Site, service: Json) -> None:
    """The two writes of a controller."""
    path = f"{_path(service['metadata']['namespace'])}/{service['metadata']['name']}/status"
    ingress = {"ingress": [{"ip": "192.0.2.1"}]}
    await place.kube.patch(path, MERGE_PATCH, {"metadata": {"finalizers": [FINALIZER]}})
    await place.kube.patch(path, MERGE_PATCH, {"status": {"loadBalancer": ingress}})


async def _timed(
    place: Site, name: str, serve: Callable[[Site, Json], Awaitable[None]] = _leave_alone
) -> list[float]:
    """Seconds until a new Service of each calm tenant has its address, one after the other."""
    await place.count_again()
    made = []
    for index in range(ROUNDS):
        for tenant in (f"tenant-{number}" for number in range(2, TENANTS + 1)):
            made.append((tenant, f"{name}-{index}"))
            service = _service(*made[-1])
            await place.kube.post(_path(tenant), service)
            await serve(place, service)
            await asyncio.sleep(PACE)

    async def have_addresses() -> bool:
        return len(_delays(place, made)) == len(made)

    await until_so("the new Services have addresses", have_addresses, pause=0.5)
    return _delays(place, made)


def _delays(place: Site, made: list[tuple[str, str]]) -> list[float]:
    wanted = set(made)
    created: dict[tuple[str, str], float] = {}
    patched = defaultdict[tuple[str, str], list[float]](list)
    for entry in place.cluster.audit():
        key = (entry.namespace, entry.name)
        if entry.resource != "services" or key not in wanted or entry.code >= 300:
            continue
        if entry.verb == "create":
            created[key] = entry.answered_at
        elif entry.subresource == "status" and entry.verb == "patch":
            patched[key].append(entry.received_at)
    # The first write is the finalizer's.
    return [patched[key][1] - created[key] for key in made if len(patched[key]) > 1]


async def _in_a_storm(
    place: Site,
    services: int,
    name: str = "storm",
    serve: Callable[[Site, Json], Awaitable[None]] = _leave_alone,
) -> tuple[list[float], int]:
    """What `_timed` finds while one tenant changes its Services, and how often that one did."""
    kube = Kube(await config.load(str(place.cluster.kubeconfig("admin"))), "storm")
    ports, names = count(1), cycle(range(1, services + 1))
    changes = 0

    async def change() -> None:
        nonlocal changes
        while True:
            body = {"spec": {"ports": [{"port": 1000 + next(ports) % 60_000, "protocol": "TCP"}]}}
            await kube.patch(f"{_path(STORM)}/web-{next(names)}", MERGE_PATCH, body)
            changes += 1

    async with asyncio.TaskGroup() as group:
        storm = [group.create_task(change()) for _ in range(min(AT_ONCE, services))]
        delays = await _timed(place, name, serve)
        for task in storm:
            task.cancel()
    await kube.close()
    return delays, changes


def _path(tenant: str) -> str:
    return f"/api/v1/namespaces/{tenant}/services"


def _service(tenant: str, name: str) -> Json:
    return {**SERVICE, "metadata": {"name": name, "namespace": tenant}}
