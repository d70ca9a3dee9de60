"""What a person should look at first: short sentences, each with the section that says more."""

from collections.abc import Iterator
from dataclasses import dataclass

from ccm.model.objects import Json, mapping, objects, text
from ccm.supervisor.https.page.parts import stops
from ccm.supervisor.https.page.section import Facts
from ccm.supervisor.https.page.words import duration, number, pace, some
from ccm.supervisor.metrics.readings import controller_of

LONG = 60.0  # seconds that a node may wait before anybody has to look

CHECKS = {"leaderElection": "leadership", "watches": "watches", "freshness": "watches"}
"""Failing check → its section; the others are about workers."""

OBJECTS = {
    "node": "nodes",
    "route": "nodes",
    "service": "balancers",
    "volume-label": "volumes",
}
"""Controller → the section of its objects."""


@dataclass(frozen=True, slots=True)
class Concern:
    """One sentence; `anchor` is the section."""

    anchor: str
    sentence: str


def concerns(status: Facts) -> Iterator[Concern]:
    """Nothing at all when all is well."""
    for check, why in mapping(status.get("failing_checks")).items():
        yield Concern(CHECKS.get(check, "workers"), f"{check}: {why}")
    yield from _of_workers(objects(status.get("workers")))
    yield from _of_nodes(mapping(status.get("newcomers")))
    for stop in stops(mapping(status.get("deletions"))):
        yield Concern("deletions", stop)
    yield from _of_budget(mapping(status.get("budget")))
    for kind, facts in mapping(mapping(status.get("feed")).get("kinds")).items():
        if trouble := mapping(facts).get("trouble"):
            yield Concern("watches", f"The watch of {kind} is interrupted: {trouble}")
    for duty, keys in mapping(status.get("quarantined")).items():
        left_alone = some(len(mapping(keys)), "object")
        yield Concern("quarantine", f"{left_alone} of {duty.replace('_', '-')} in quarantine.")
    for account, facts in mapping(status.get("identities")).items():
        if trouble := mapping(facts).get("trouble"):
            yield Concern("identities", f"No new token for {account}: {trouble}")


def _of_workers(workers: list[Json]) -> Iterator[Concern]:
    for facts in workers:
        name, faults = text(facts.get("name")), facts.get("faults")
        for fault in faults if isinstance(faults, list) else ():
            yield Concern("workers", f"{name} refused to start: {fault}")
        if failing := number(facts.get("failing")):
            anchor = OBJECTS.get(controller_of(name), "workers")
            yield Concern(anchor, f"{name} cannot settle {some(failing, 'object')}.")


def _of_nodes(newcomers: Facts) -> Iterator[Concern]:
    longest = max(map(number, mapping(newcomers.get("first")).values()), default=0.0)
    if longest > LONG:
        waiting = some(newcomers.get("count"), "node")
        yield Concern("nodes", f"{waiting} not initialised, one for {duration(longest)}.")


def _of_budget(classes: Facts) -> Iterator[Concern]:
    for name, facts in classes.items():
        if (state := mapping(facts).get("state")) and state != "open":
            now, full = (pace(mapping(facts).get(f"{it}per_second")) for it in ("", "full_"))
            yield Concern(
                "budget", f"Cloud calls of class {name}: {state}, {now} of {full} a second."
            )
