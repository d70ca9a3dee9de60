"""What is being worked on: objects that are not settled, balancers, and what was decided lately."""

from collections.abc import Iterator

from ccm.model.objects import Json, mapping, objects, text
from ccm.supervisor.https.page.section import Column, Facts, Section
from ccm.supervisor.https.page.words import (
    ago,
    count,
    duration,
    hence,
    listing,
    number,
    some,
    state,
)
from ccm.supervisor.metrics.readings import controller_of

NODE_COLUMNS = (
    Column("Node", "key"),
    Column("Waits for", "seconds", duration),
    Column("Worker", "worker"),
    Column("Why", "why"),
)
BALANCER_COLUMNS = (
    Column("Service", "service"),
    Column("Balancer", "state", state),
    Column("The cloud said so", "seconds_ago", ago),
    Column("Address", "ways_in", listing),
    Column("Hosts", "hosts", count),
    Column("Why", "why"),
)
VOLUME_COLUMNS = (Column("PersistentVolume", "key"), Column("Why", "why"))
NEWS_COLUMNS = (
    Column("Object", "key"),
    Column("When", "seconds_ago", ago),
    Column("Worker", "worker"),
    Column("Decision", "what", state),
    Column("Why", "why"),
)
QUARANTINE_COLUMNS = (
    Column("Object", "key"),
    Column("Controller", "controller"),
    Column("Tried again", "seconds", hence),
)


def nodes(workers: list[Json], newcomers: Facts) -> Section:
    """What the supervisor itself sees waiting, with the reasons that workers give."""
    since = mapping(newcomers.get("first"))
    told = list(_unsettled(workers, "node"))
    explained = {entry["key"] for entry in told}
    silent = [
        {"key": key, "why": "nobody has said why yet"} for key in since if key not in explained
    ]
    waiting = sorted((*told, *silent), key=lambda entry: -number(since.get(entry["key"])))
    unrouted = list(_unsettled(workers, "route"))
    unready = max(number(newcomers.get("count")), _count(workers, "node"), len(waiting))
    return Section(
        "nodes",
        "Nodes not ready yet",
        f"{some(newcomers.get('count'), 'node')} not initialised; who waits longest is first.",
        NODE_COLUMNS,
        [{"seconds": since.get(entry["key"]), **entry} for entry in (*waiting, *unrouted)],
        "None is known to wait.",
        total=int(unready) + _count(workers, "route"),
    )


def balancers(workers: list[Json]) -> Section:
    """What the worker names of them, and what else it could not settle."""
    ours = [facts for facts in workers if _controller(facts) == "service"]
    why = {entry["key"]: entry["why"] for entry in _unsettled(workers, "service")}
    known = [entry for facts in ours for entry in objects(facts.get("services"))]
    named = {text(entry.get("service")) for entry in known}
    entries = [
        *({"service": key, "state": "unsettled"} for key in why if key not in named),
        *known,
    ]
    total = max(sum(number(facts.get("balancers")) for facts in ours), len(entries))
    hosts = sum(number(facts.get("hosts")) for facts in ours)
    return Section(
        "balancers",
        "Load balancers",
        f"{some(total, 'Service')}, trouble first; {some(hosts, 'node')} may stand behind them.",
        BALANCER_COLUMNS,
        [entry | _reason(why, text(entry.get("service"))) for entry in entries],
        "None is known.",
        total=int(total),
    )


def volumes(workers: list[Json]) -> Section:
    return Section(
        "volumes",
        "Volumes not labelled yet",
        "Volumes whose zone is still to be written.",
        VOLUME_COLUMNS,
        list(_unsettled(workers, "volume-label")),
        "None is known to wait.",
        total=_count(workers, "volume-label"),
    )


def news(workers: list[Json]) -> Section:
    told = [
        {
            **entry,
            "worker": facts.get("name"),
            "seconds_ago": number(entry.get("seconds_ago")) + number(facts.get("silent_seconds")),
        }
        for facts in workers
        for entry in objects(facts.get("news"))
    ]
    return Section(
        "news",
        "Recent decisions",
        "What failed and what came right, newest first; what many objects share is told once.",
        NEWS_COLUMNS,
        sorted(told, key=lambda entry: number(entry["seconds_ago"])),
        "Nothing failed since the workers started.",
    )


def quarantine(duties: Facts) -> Section:
    return Section(
        "quarantine",
        "Quarantine",
        "Objects that a worker had in hand each time it died: left alone, then tried alone.",
        QUARANTINE_COLUMNS,
        [
            {"key": key, "controller": duty.replace("_", "-"), "seconds": seconds}
            for duty, keys in duties.items()
            for key, seconds in mapping(keys).items()
        ],
        "No object is in quarantine.",
    )


def _unsettled(workers: list[Json], controller: str) -> Iterator[Json]:
    """Some objects that workers of this controller have not settled, and why."""
    for facts in workers:
        if _controller(facts) == controller:
            for key, why in mapping(facts.get("reasons")).items():
                yield {"key": key, "worker": facts.get("name"), "why": why}


def _count(workers: list[Json], controller: str) -> int:
    """How many they have not settled."""
    ours = (facts for facts in workers if _controller(facts) == controller)
    return int(sum(number(facts.get("unsettled")) for facts in ours))


def _controller(facts: Json) -> str:
    return controller_of(text(facts.get("name")))


def _reason(why: Facts, key: str) -> Json:
    return {"why": why[key]} if key in why else {}
