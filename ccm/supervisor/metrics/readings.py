"""From what `status` says to the values of metrics: pure, one function for each of its parts."""

from collections import Counter
from collections.abc import Iterator

from ccm import metrics
from ccm.controllers import ALIASES, is_enabled
from ccm.decide.children import WorkerState
from ccm.metrics import Metric
from ccm.model.objects import Json
from ccm.supervisor.budget import worker_name
from ccm.supervisor.shards import SINGLE

Reading = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels, and its value."""

QUEUES = {"node": "Nodes", "route": "Routes"}
"""Controller → what upstream calls its work queue, where that is not the same."""


def controller_of(worker: str) -> str:
    """The controller that a process is a part of; node workers share one."""
    return "node" if worker.startswith("node-") else worker


def queue_of(worker: str) -> str:
    """What upstream calls the work queue of this worker."""
    return QUEUES.get(controller := controller_of(worker), controller)


def of_workers(workers: list[Json]) -> Iterator[Reading]:
    """Processes one by one; a worker without a process has none of what a process tells."""
    for facts in workers:
        labels = (facts["name"],)
        for state in WorkerState:
            yield metrics.WORKER_STATE, (*labels, state), float(state == facts["state"])
        yield metrics.DEATHS, labels, facts["deaths_in_a_row"]
        yield metrics.SILENT, labels, facts["silent_seconds"]
        for metric, key in (
            (metrics.WORKER_MEMORY, "rss_bytes"),
            (metrics.LOOP_LAG, "loop_lag"),
            (metrics.EVENTS_WAITING, "events_waiting"),
        ):
            if key in facts:
                yield metric, labels, facts[key]


def of_queues(workers: list[Json], quarantined: Json) -> Iterator[Reading]:
    """Queues by controller: the sum over its workers, of ages the longest."""
    sums: Counter[tuple[Metric, str]] = Counter()
    longest: dict[str, float] = {}
    for facts in workers:
        worker, queue = facts["name"], facts.get("queue", {})
        name, controller = queue_of(worker), controller_of(worker)
        sums[metrics.DEPTH, name] += queue.get("ready", 0)
        sums[metrics.UNFINISHED, name] += queue.get("unfinished_seconds", 0)
        sums[metrics.LATER, controller] += queue.get("later", 0)
        sums[metrics.UNSETTLED, controller] += facts.get("unsettled", 0)
        sums[metrics.QUARANTINED, controller] += 0
        longest[name] = max(longest.get(name, 0.0), queue.get("oldest_seconds", 0.0))
    for duty, keys in quarantined.items():
        sums[metrics.QUARANTINED, duty.replace("_", "-")] += len(keys)
    yield from ((metric, (label,), value) for (metric, label), value in sums.items())
    yield from ((metrics.LONGEST, (name,), seconds) for name, seconds in longest.items())


def of_controllers(workers: list[Json], enabled: tuple[str, ...]) -> Iterator[Reading]:
    """Which of the enabled controllers act here, by the names that upstream gives them."""
    at_work = {
        controller_of(facts["name"]) for facts in workers if facts["state"] == WorkerState.RUNNING
    }
    for alias, controller in ALIASES.items():
        if is_enabled(controller, enabled):
            runs_in = alias if alias in SINGLE else "node"
            labels = (alias, "cloud-controller-manager")
            yield metrics.RUNNING, labels, float(runs_in in at_work)


def of_feed(feed: Json) -> Iterator[Reading]:
    for kind, facts in feed["kinds"].items():
        yield metrics.OBJECTS, (kind,), facts["objects"]
        yield metrics.FEED_AGE, (kind,), facts["silent_seconds"]
        yield metrics.FEED_TROUBLE, (kind,), float(bool(facts["trouble"]))
        yield metrics.LISTS, (kind,), facts["lists"]
    yield metrics.UNDECODABLE, (), feed["undecodable"]
    boxes: Counter[tuple[Metric, str]] = Counter()
    for ident, box in feed["mailboxes"].items():  # two of one worker during a hand-over
        boxes[metrics.MAILBOX, worker_name(ident)] += box["depth"]
        boxes[metrics.IN_FLIGHT, worker_name(ident)] += box["in_flight"]
    yield from ((metric, (worker,), value) for (metric, worker), value in boxes.items())


def of_budget(budget: Json) -> Iterator[Reading]:
    for name, facts in budget.items():
        yield metrics.PACE, (name,), facts["per_second"]
        yield metrics.FULL_PACE, (name,), facts["full_per_second"]
        yield metrics.TOKENS, (name,), facts.get("in_stock", 0.0)
        yield metrics.THROTTLED, (name,), facts["throttled"]
        yield metrics.CALLS_WAITING, (name,), sum(facts["waiting"].values())
        ages = (ask["seconds"] for ask in facts["queue"])
        yield metrics.OLDEST_WAIT, (name,), max(ages, default=0.0)


def of_deletions(facts: Json) -> Iterator[Reading]:
    counts = facts["counts"]
    yield metrics.PROPOSED, (), counts["proposed"]
    yield metrics.PERMITTED, (), counts["permitted"]
    yield metrics.NOT_UNDERSTOOD, (), counts["not_understood"]
    yield metrics.HELD, (), counts["held"]
    yield metrics.ON_HOLD, (), float(bool(facts["held"]))
    yield metrics.FROZEN, (), float(facts["frozen"] is not None)
    yield metrics.STATE_TROUBLE, (), float(bool(facts["trouble"]))
    yield metrics.DELETIONS_LEFT, (), facts["budget"]["left"]
