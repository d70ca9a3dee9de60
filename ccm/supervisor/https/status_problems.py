"""What a person should look at first, by how bad it is: from the status to sentences."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ccm.controllers import BY_WORKER
from ccm.model.objects import Json, mapping, number, objects, text
from ccm.supervisor.deletion_state import why_blocked
from ccm.supervisor.https.status_html import StatusPart, duration, plural, rate
from ccm.supervisor.status_metrics import controller_of_worker

INITIALIZATION_THRESHOLD = 60.0  # seconds a node may be uninitialized before it is a problem

SECTION_OF_CHECK = {
    "leaderElection": "leadership",
    "access": "leadership",
    "watches": "watches",
    "freshness": "watches",
}
"""By health check; the others are about workers."""

NAMED = 3  # objects in one sentence


class Severity(StrEnum):
    """As of the alerts: critical means that nodes, balancers or routes are not looked after."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """One sentence; `anchor` is the section that says more, `page` the one of the documents."""

    severity: Severity
    anchor: str
    sentence: str
    page: str = "operations.md"
    kind: str = ""
    names: tuple[str, ...] = ()

    def commands(self) -> Iterator[str]:
        """What to type to see why, for the objects that it names."""
        return (f"ccm-supervisor explain {self.kind} {name}" for name in self.names)


def in_order(problems: Iterable[StatusProblem]) -> list[StatusProblem]:
    """The worst first; of the same severity as they come."""
    return sorted(problems, key=lambda problem: [*Severity].index(problem.severity))


def find_problems(status: StatusPart) -> Iterator[StatusProblem]:
    """What is wrong; nothing when all is well."""
    for check, why in mapping(status.get("failing_checks")).items():
        anchor = SECTION_OF_CHECK.get(check, "workers")
        yield StatusProblem(Severity.CRITICAL, anchor, f"{check}: {why}", "endpoints.md#health")
    yield from _of_cloud(objects(status.get("workers")))
    yield from _of_workers(objects(status.get("workers")))
    yield from _of_nodes(mapping(status.get("uninitialized_nodes")))
    yield from _of_deletions(mapping(status.get("deletions")))
    yield from _of_budget(mapping(status.get("budget")))
    for kind, watch in mapping(mapping(status.get("informer")).get("kinds")).items():
        if error := mapping(watch).get("last_error"):
            sentence = f"The watch of {kind} is broken: {error}"
            page = "operations.md#ccmwatchbroken"
            yield StatusProblem(Severity.CRITICAL, "watches", sentence, page)
    for controller, keys in mapping(status.get("quarantined")).items():
        yield _quarantine(controller.replace("_", "-"), [*map(str, mapping(keys))])
    for account, identity in mapping(status.get("identities")).items():
        if error := mapping(identity).get("last_error"):
            sentence = f"No new token for {account}: {error}"
            yield StatusProblem(Severity.CRITICAL, "identities", sentence, "permissions.md")


def _of_cloud(workers: list[Json]) -> Iterator[StatusProblem]:
    """One problem for all workers that get no answer: the cause of what else is wrong."""
    outages = [mapping(worker.get("cloud_outage")) for worker in workers]
    if found := [outage for outage in outages if outage.get("why")]:
        longest = max(found, key=lambda outage: number(outage.get("seconds")))
        lasting = duration(number(longest.get("seconds")))
        sentence = f"Every read of the cloud has failed for {lasting}: {longest.get('why')}"
        page = "operations.md#the-cloud-fails"
        yield StatusProblem(Severity.CRITICAL, "workers", sentence, page)


def _of_workers(workers: list[Json]) -> Iterator[StatusProblem]:
    for worker in workers:
        name, faults = text(worker.get("name")), worker.get("faults")
        controller = controller_of_worker(name)
        is_wanted = worker.get("state") != "skipped"
        for fault in faults if is_wanted and isinstance(faults, list) else ():
            sentence = f"{name} refused to start: {fault}"
            page = "operations.md#ccmworkerdown"
            yield StatusProblem(Severity.CRITICAL, "workers", sentence, page)
        if failing := number(worker.get("failing")):
            anchor = BY_WORKER[controller].section if controller in BY_WORKER else "workers"
            sentence = f"{name} fails to reconcile {plural(failing, 'object')}"
            page = "operations.md#ccmreconcilesfail"
            names = _failing(worker, int(failing))
            yield _named(Severity.WARNING, anchor, sentence, page, controller, names)


def _failing(worker: Json, count: int) -> list[str]:
    """Those of its objects that failed lately and are pending still, or all that are pending."""
    reasons = mapping(worker.get("reasons"))
    failed = {
        text(entry.get("key"))
        for entry in objects(worker.get("recent"))
        if entry.get("what") == "failed"
    }
    names = [*map(str, reasons)]
    return names if len(names) == count else [key for key in names if key in failed]


def _named(
    severity: Severity, anchor: str, sentence: str, page: str, controller: str, names: list[str]
) -> StatusProblem:
    """With the first of the objects in the sentence."""
    first = tuple(names[:NAMED])
    listed = f"{sentence}: {', '.join(first)}{', …' if len(names) > NAMED else ''}."
    kind = BY_WORKER[controller].explained if controller in BY_WORKER else ""
    return StatusProblem(
        severity, anchor, listed if first else f"{sentence}.", page, kind, first if kind else ()
    )


def _of_nodes(uninitialized: StatusPart) -> Iterator[StatusProblem]:
    first = {str(name): number(s) for name, s in mapping(uninitialized.get("first")).items()}
    if (longest := max(first.values(), default=0.0)) > INITIALIZATION_THRESHOLD:
        many = plural(uninitialized.get("count"), "node")
        sentence = f"{many} not initialized, one for {duration(longest)}"
        page = "operations.md#a-node-stays-tainted"
        names = sorted(first, key=lambda name: -first[name])
        yield _named(Severity.CRITICAL, "nodes", sentence, page, "node", names)


def _of_deletions(deletions: StatusPart) -> Iterator[StatusProblem]:
    """A freeze is what someone wanted; the others are faults."""
    for why in why_blocked({"frozen": deletions.get("frozen")}):
        yield StatusProblem(Severity.WARNING, "deletions", why, "deletion.md")
    for why in why_blocked({**deletions, "frozen": None}):
        yield StatusProblem(Severity.CRITICAL, "deletions", why, "deletion.md")


def _of_budget(classes: StatusPart) -> Iterator[StatusProblem]:
    for name, limit in classes.items():
        if (state := mapping(limit).get("state")) and state != "closed":
            now, full = (rate(mapping(limit).get(f"{it}per_second")) for it in ("", "full_"))
            sentence = f"Cloud calls of class {name}: {state}, {now} of {full} a second."
            severity = Severity.CRITICAL if state == "open" else Severity.WARNING
            page = "operations.md#the-cloud-throttles"
            yield StatusProblem(severity, "budget", sentence, page)


def _quarantine(controller: str, names: list[str]) -> StatusProblem:
    sentence = f"{plural(len(names), 'object')} of {controller} in quarantine"
    page = "operations.md#ccmkeysquarantined"
    return _named(Severity.WARNING, "quarantine", sentence, page, controller, names)
