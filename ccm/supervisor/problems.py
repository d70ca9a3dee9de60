"""What a person should look at first: causes, each with what waits for it; from the status."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ccm.controllers import BY_WORKER, EXPLAINED
from ccm.model.status import (
    BudgetStatus,
    DeletionStatus,
    IdentityStatus,
    PendingObjects,
    Problem,
    Status,
    UninitializedStatus,
    WatchStatus,
    WorkerStatus,
)
from ccm.supervisor.deletion_state import why_frozen, why_stopped
from ccm.supervisor.https.status_html import duration, plural, rate
from ccm.supervisor.status_metrics import controller_of_worker

INITIALIZATION_THRESHOLD = 60.0  # seconds a node may be uninitialized before it is a problem
NAMED = 3  # objects in one sentence
CALL = re.compile(r"^[A-Z][A-Za-z]+: ")  # an operation of the cloud, before its error

SECTION_OF_CHECK = {
    "leaderElection": "leadership",
    "access": "leadership",
    "watches": "watches",
    "freshness": "watches",
}
"""By health check; the others are about workers."""
CHECKS_OF_WATCHES = ("watches", "freshness")


class Severity(StrEnum):
    """As of the alerts: critical means that nodes, load balancers or routes are left alone."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class StatusProblem:
    """One cause in a sentence, and in `symptoms` what follows from it.

    `anchor` is the section of the status page that has more, `page` that of the documents; `kind`
    and `names` are what to `explain`.
    """

    severity: Severity
    anchor: str
    sentence: str
    page: str = "operations.md"
    kind: str = ""
    names: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()

    def commands(self) -> Iterator[str]:
        """What to type to see why, for the objects that it names."""
        return (f"ccm-supervisor explain {self.kind} {name}" for name in self.names)

    def describe(self) -> Problem:
        """As the status has it for programs."""
        return {
            "severity": str(self.severity),
            "sentence": self.sentence,
            "symptoms": [*self.symptoms],
            "explain": [*self.commands()],
            "page": self.page,
        }


def find_problems(status: Status, failing_checks: Mapping[str, str] = {}) -> list[StatusProblem]:
    """The worst first, of one severity what causes others; nothing when all is well."""
    checks = dict(failing_checks)
    causes = _causes(status["workers"])
    nodes = [*_of_nodes(status["uninitialized_nodes"], causes)]
    budget = [*_of_budget(status["budget"], causes)]
    watches = [*_of_watches(status["informer"]["kinds"], checks)]
    refusals = [*_of_refusals(status["workers"], checks)]
    found = [
        *refusals,
        *watches,
        *(cause.problem() for cause in causes),
        *_of_checks(checks),
        *nodes,
        *_of_deletions(status["deletions"]),
        *budget,
        *_of_quarantine(status["quarantined"]),
        *_of_growth(status["workers"]),
        *_of_identities(status["identities"]),
    ]
    return sorted(found, key=lambda problem: [*Severity].index(problem.severity))


@dataclass
class Cause:
    """A reason that pending objects share, whatever workers report it."""

    why: str
    is_outage: bool = False
    severity: Severity = Severity.WARNING
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)  # objects by controller
    names: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by kind
    symptoms: list[str] = field(default_factory=list)

    def add(self, controller: str, group: PendingObjects) -> None:
        """These objects, too."""
        self.seconds = max(self.seconds, group["seconds"])
        self.counts[controller] += group["count"]
        known = self.names[_kind(controller)]
        known += [name for name in group["names"] if name not in known]

    def holds_up(self, nodes: Iterable[str]) -> bool:
        """Whether one of these Nodes is among its objects."""
        return not set(self.names.get("node", ())).isdisjoint(nodes)

    def waiting(self) -> str:
        """How many objects of what kinds, and some names; a Node of two controllers counts once."""
        parts = []
        for kind, names in self.names.items():
            many = max(count for name, count in self.counts.items() if _kind(name) == kind)
            noun = EXPLAINED[kind].kind if kind else "object"
            more = ", …" if many > NAMED else ""
            parts.append(f"{plural(many, noun)} ({', '.join(names[:NAMED])}{more})")
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    def problem(self) -> StatusProblem:
        """Why, for how long, and who waits."""
        since, waiting = duration(self.seconds), self.waiting()
        kind = next(iter(self.names), "")
        if self.is_outage:
            sentence = f"Every read of the cloud has failed for {since}: {self.why}."
            sentence += f" Waiting: {waiting}." if waiting else ""
            anchor, page = "workers", "troubleshooting.md#the-cloud-fails"
        else:
            sentence = f"{self.why}. Failing for {since}: {waiting}."
            anchor, page = _section(next(iter(self.counts))), "alerts.md#ccmreconcilesfail"
        names = tuple(self.names[kind][:NAMED]) if kind else ()
        return StatusProblem(
            self.severity, anchor, sentence, page, kind, names, tuple(self.symptoms)
        )


def _causes(workers: list[WorkerStatus]) -> list[Cause]:
    """One for each reason; all that fails in a worker that cannot read the cloud is one outage."""
    outage = _outage(workers)
    causes = {outage.why: outage} if outage else {}
    waiting = []
    for worker in workers:
        controller = controller_of_worker(worker["name"])
        is_cut_off = bool(worker.get("cloud_outage", {}).get("why"))
        for group in worker.get("pending_groups", ()):
            why = CALL.sub("", group["why"]).rstrip(".")
            if not group["is_failure"]:
                waiting.append((controller, why, group))
            elif outage and is_cut_off and why != outage.why:
                outage.add(controller, group)
                outage.symptoms.append(f"{controller}: {why}.")
            else:
                causes.setdefault(why, Cause(why)).add(controller, group)
    for controller, why, group in waiting:
        if cause := next((it for it in causes.values() if it.holds_up(group["names"])), None):
            many = plural(group["count"], _noun(controller))
            cause.symptoms.append(f"{controller}: {many} pending: {why}.")
    return [*causes.values()]


def find_outage(workers: list[WorkerStatus]) -> Cause | None:
    """Why workers cannot read the cloud, and what waits for it."""
    return next((cause for cause in _causes(workers) if cause.is_outage), None)


def _outage(workers: list[WorkerStatus]) -> Cause | None:
    """Of the workers that get no answer, what the one has seen that waits for the longest."""
    outages = [worker.get("cloud_outage", {}) for worker in workers]
    if not (found := [outage for outage in outages if outage.get("why")]):
        return None
    longest = max(found, key=lambda outage: outage.get("seconds", 0.0))
    why = CALL.sub("", longest["why"]).rstrip(".")
    return Cause(why, True, Severity.CRITICAL, longest.get("seconds", 0.0))


def _kind(controller: str) -> str:
    return BY_WORKER[controller].explained if controller in BY_WORKER else ""


def _noun(controller: str) -> str:
    kind = _kind(controller)
    return EXPLAINED[kind].kind if kind else "object"


def _section(controller: str) -> str:
    return BY_WORKER[controller].section if controller in BY_WORKER else "workers"


def _of_nodes(uninitialized: UninitializedStatus, causes: list[Cause]) -> Iterator[StatusProblem]:
    """A symptom where the cause is known; else a problem after a minute."""
    first = uninitialized.get("first", {})
    if (longest := max(first.values(), default=0.0)) <= INITIALIZATION_THRESHOLD:
        return
    names = sorted(first, key=lambda name: -first[name])
    many = plural(uninitialized.get("count"), "Node")
    sentence = f"{many} not initialized, one for {duration(longest)}"
    if cause := next((it for it in causes if it.holds_up(names)), None):
        cause.severity = Severity.CRITICAL
        cause.symptoms.append(f"{sentence}.")
        return
    page = "troubleshooting.md#a-node-stays-tainted"
    yield _named(Severity.CRITICAL, "nodes", sentence, page, "node", names)


def _of_watches(kinds: dict[str, WatchStatus], checks: dict[str, str]) -> Iterator[StatusProblem]:
    """One for each error; the health checks of watches then say the same."""
    broken = defaultdict(list)
    for kind, watch in kinds.items():
        if error := watch["last_error"]:
            broken[error].append(kind)
    symptoms = tuple(
        f"{it}: {checks.pop(it)}." for it in CHECKS_OF_WATCHES if broken and it in checks
    )
    for error, names in broken.items():
        sentence = f"The API server cannot be watched: {error}. Kinds: {', '.join(names)}."
        page = "alerts.md#ccmwatchbroken"
        yield StatusProblem(Severity.CRITICAL, "watches", sentence, page, symptoms=symptoms)


def _of_refusals(workers: list[WorkerStatus], checks: dict[str, str]) -> Iterator[StatusProblem]:
    """One for each fault that keeps workers from starting."""
    refusing = defaultdict(list)
    for worker in workers:
        for fault in worker["faults"] if worker["state"] != "skipped" else ():
            refusing[fault].append(worker["name"])
    for fault, names in refusing.items():
        symptoms = tuple(f"{name}: {checks.pop(name)}." for name in names if name in checks)
        sentence = f"{fault.rstrip('.')}. Refused to start: {', '.join(names)}."
        page = "alerts.md#ccmworkerdown"
        yield StatusProblem(Severity.CRITICAL, "workers", sentence, page, symptoms=symptoms)


def _of_checks(checks: dict[str, str]) -> Iterator[StatusProblem]:
    """What no other problem explains."""
    for check, why in checks.items():
        anchor = SECTION_OF_CHECK.get(check, "workers")
        yield StatusProblem(Severity.CRITICAL, anchor, f"{check}: {why}", "endpoints.md#health")


def _named(
    severity: Severity, anchor: str, sentence: str, page: str, kind: str, names: list[str]
) -> StatusProblem:
    """With the first of the objects in the sentence."""
    first = tuple(names[:NAMED])
    listed = f"{sentence}: {', '.join(first)}{', …' if len(names) > NAMED else ''}."
    return StatusProblem(
        severity, anchor, listed if first else f"{sentence}.", page, kind, first if kind else ()
    )


def _of_deletions(deletions: DeletionStatus) -> Iterator[StatusProblem]:
    """A freeze is what someone wanted; the others are faults."""
    for why in why_frozen(deletions):
        yield StatusProblem(Severity.WARNING, "deletions", why, "deletion.md")
    for why in why_stopped(deletions):
        yield StatusProblem(Severity.CRITICAL, "deletions", why, "deletion.md")


def _of_budget(classes: dict[str, BudgetStatus], causes: list[Cause]) -> Iterator[StatusProblem]:
    """During an outage, a symptom."""
    for name, limit in classes.items():
        if (state := limit["state"]) != "closed":
            now, full = rate(limit["per_second"]), rate(limit["full_per_second"])
            does = "pause" if state == "open" else "are slowed"
            sentence = f"The cloud throttles: {name} calls {does} ({now} of {full} a second)."
            if outage := next((cause for cause in causes if cause.is_outage), None):
                outage.symptoms.append(sentence)
                continue
            severity = Severity.CRITICAL if state == "open" else Severity.WARNING
            page = "troubleshooting.md#the-cloud-throttles"
            yield StatusProblem(severity, "budget", sentence, page)


def _of_quarantine(controllers: dict[str, dict[str, float]]) -> Iterator[StatusProblem]:
    for package, keys in controllers.items():
        controller, names = package.replace("_", "-"), [*keys]
        sentence = f"{plural(len(names), 'object')} of {controller} in quarantine"
        page = "alerts.md#ccmkeysquarantined"
        yield _named(Severity.WARNING, "quarantine", sentence, page, _kind(controller), names)


def _of_growth(workers: list[WorkerStatus]) -> Iterator[StatusProblem]:
    for worker in workers:
        if grew := worker["grew"]:
            sentence = f"{worker['name']} grew to {grew}, and was replaced: its provider may leak"
            page = "troubleshooting.md#a-worker-keeps-dying"
            yield StatusProblem(Severity.WARNING, "workers", sentence, page)


def _of_identities(accounts: dict[str, IdentityStatus]) -> Iterator[StatusProblem]:
    for account, identity in accounts.items():
        if error := identity["last_error"]:
            sentence = f"No new token for {account}: {error}"
            yield StatusProblem(Severity.CRITICAL, "identities", sentence, "permissions.md")
