"""How the controller manager itself is doing: workers, budget, watches, deletions, identities."""

from collections.abc import Iterator

from ccm.decide.deletion import RULES
from ccm.model.objects import Json, mapping, objects, text
from ccm.supervisor.https.page.section import Column, Facts, Section
from ccm.supervisor.https.page.words import (
    ago,
    count,
    duration,
    listing,
    mebibytes,
    number,
    pace,
    some,
    state,
)

WORKER_COLUMNS = (
    Column("Worker", "name"),
    Column("State", "state", state),
    Column("For", "state_seconds", duration),
    Column("Process", "processes", listing),
    Column("Restarts", "restarts", count),
    Column("Objects", "objects", count),
    Column("Queue", "ready", count),
    Column("Not settled", "unsettled", count),
    Column("Failing", "failing", count),
    Column("Memory", "rss_bytes", mebibytes),
    Column("Last heard", "silent_seconds", ago),
)
DELETION_COLUMNS = (
    Column("Node", "node"),
    Column("Verdict", "verdict", state),
    Column("For at least", "seconds", duration),
    Column("Reason", "reason"),
    Column("Meaning, and what to do", "meaning"),
)
BUDGET_COLUMNS = (
    Column("Class", "name"),
    Column("State", "state", state),
    Column("Calls/s now", "per_second", pace),
    Column("Calls/s full", "full_per_second", pace),
    Column("In stock", "in_stock", count),
    Column("Granted", "granted", count),
    Column("Throttled", "throttled", count),
    Column("Waiting", "calls_waiting", count),
    Column("Oldest waits for", "longest_wait", duration),
)
WATCH_COLUMNS = (
    Column("Kind", "name"),
    Column("Objects", "objects", count),
    Column("Last sign of life", "silent_seconds", ago),
    Column("Lists", "lists", count),
    Column("Trouble", "trouble"),
)
IDENTITY_COLUMNS = (
    Column("Account", "name"),
    Column("Token good for", "seconds_left", duration),
    Column("Trouble", "trouble"),
)

MEANINGS = {str(rule.reason): f"{rule.meaning} {rule.remedy}".replace("`", "'") for rule in RULES}


def workers(known: list[Json]) -> Section:
    return Section(
        "workers",
        "Workers",
        "One row each; a second process takes over from the first.",
        WORKER_COLUMNS,
        [
            {
                **facts,
                "ready": mapping(facts.get("queue")).get("ready"),
                "processes": [pid for pid in (facts.get("pid"), facts.get("successor_pid")) if pid],
            }
            for facts in known
        ],
        "There is none.",
    )


def deletions(facts: Facts) -> Section:
    counts, budget = mapping(facts.get("counts")), mapping(facts.get("budget"))
    allowance = (
        f"Budget: {count(budget.get('left'))} of {count(budget.get('limit'))} left in"
        f" {duration(budget.get('window_seconds'))}. Since the start:"
        f" {count(counts.get('proposed'))} proposed, {count(counts.get('permitted'))} permitted."
    )
    candidates = objects(facts.get("candidates"))
    return Section(
        "deletions",
        "Deletions of nodes",
        "Nodes whose machine is gone, as the cloud says, and what stands in the way.",
        DELETION_COLUMNS,
        [{**entry, "meaning": MEANINGS.get(text(entry.get("reason")))} for entry in candidates],
        "None is known.",
        total=len(candidates) + int(number(facts.get("more_candidates"))),
        remarks=(*stops(facts), allowance),
    )


def stops(facts: Facts) -> Iterator[str]:
    """Why no node at all is deleted, when that is so."""
    if frozen := mapping(facts.get("frozen")):
        who, since, why = (frozen.get(fact) for fact in ("by", "at", "why"))
        yield f"Deletions are frozen by {who} since {since}: {why}"
    if trouble := facts.get("trouble"):
        yield f"Deletions are stopped: {trouble}"
    if held := facts.get("held"):
        yield f"Deletions are held for {duration(facts.get('held_seconds'))}: {held}"


def budget(classes: Facts) -> Section:
    return Section(
        "budget",
        "Cloud budget",
        "One row a class of cloud calls; all workers share it.",
        BUDGET_COLUMNS,
        [
            {
                **facts,
                "calls_waiting": sum(map(number, mapping(facts.get("waiting")).values())),
                "longest_wait": max(
                    (number(ask.get("seconds")) for ask in objects(facts.get("queue"))), default=0
                ),
            }
            for facts in _named(classes)
        ],
        "No worker has told yet what the cloud allows.",
    )


def watches(feed: Facts) -> Section:
    skipped = number(feed.get("undecodable"))
    return Section(
        "watches",
        "Watches",
        "One list and watch a kind, for all workers.",
        WATCH_COLUMNS,
        list(_named(mapping(feed.get("kinds")))),
        "Nothing is watched yet.",
        remarks=(f"{some(skipped, 'object')} skipped: see the log.",) if skipped else (),
    )


def identities(accounts: Facts) -> Section:
    return Section(
        "identities",
        "Identities",
        "The service accounts as which the workers act.",
        IDENTITY_COLUMNS,
        list(_named(accounts)),
        "The workers act as the supervisor does.",
    )


def _named(facts: Facts) -> Iterator[Json]:
    """Each entry with its name in it."""
    for name, known in facts.items():
        yield {**mapping(known), "name": name}
