"""What a person should look at first: causes, each with what waits for it; from the status."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from ccm.controllers import BY_WORKER, EXPLAINED
from ccm.model.objects import Json, mapping, number, objects, text
from ccm.supervisor.deletion_state import why_blocked
from ccm.supervisor.https.status_html import StatusPart, duration, plural, rate
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
    """As of the alerts: critical means that nodes, balancers or routes are not looked after."""

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

    def describe(self) -> Json:
        """As the status has it for programs."""
        return {
            "severity": str(self.severity),
            "sentence": self.sentence,
            "symptoms": [*self.symptoms],
            "explain": [*self.commands()],
            "page": self.page,
        }


def find_problems(status: StatusPart) -> list[StatusProblem]:
    """The worst first, of one severity what causes others; nothing when all is well."""
    workers = objects(status.get("workers"))
    checks = {name: str(why) for name, why in mapping(status.get("failing_checks")).items()}
    causes = _causes(workers)
    nodes = [*_of_nodes(mapping(status.get("uninitialized_nodes")), causes)]
    budget = [*_of_budget(mapping(status.get("budget")), causes)]
    watches = [*_of_watches(mapping(mapping(status.get("informer")).get("kinds")), checks)]
    refusals = [*_of_refusals(workers, checks)]
    found = [
        *refusals,
        *watches,
        *(cause.problem() for cause in causes),
        *_of_checks(checks),
        *nodes,
        *_of_deletions(mapping(status.get("deletions"))),
        *budget,
        *_of_quarantine(mapping(status.get("quarantined"))),
        *_of_identities(mapping(status.get("identities"))),
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

    def add(self, controller: str, group: Json) -> None:
        """These objects, too."""
        self.seconds = max(self.seconds, number(group.get("seconds")))
        self.counts[controller] += int(number(group.get("count")))
        known = self.names[_kind(controller)]
        known += [name for name in _names(group) if name not in known]

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
            anchor, page = "workers", "operations.md#the-cloud-fails"
        else:
            sentence = f"{self.why}. Failing for {since}: {waiting}."
            anchor, page = _section(next(iter(self.counts))), "operations.md#ccmreconcilesfail"
        names = tuple(self.names[kind][:NAMED]) if kind else ()
        return StatusProblem(
            self.severity, anchor, sentence, page, kind, names, tuple(self.symptoms)
        )


def _causes(workers: list[Json]) -> list[Cause]:
    """One for each reason; all that fails in a worker that cannot read the cloud is one outage."""
    outage = _outage(workers)
    causes = {outage.why: outage} if outage else {}
    waiting = []
    for worker in workers:
        controller = controller_of_worker(text(worker.get("name")))
        is_cut_off = bool(mapping(worker.get("cloud_outage")).get("why"))
        for group in objects(worker.get("pending_groups")):
            why = CALL.sub("", text(group.get("why"))).rstrip(".")
            if not group.get("is_failure"):
                waiting.append((controller, why, group))
            elif outage and is_cut_off and why != outage.why:
                outage.add(controller, group)
                outage.symptoms.append(f"{controller}: {why}.")
            else:
                causes.setdefault(why, Cause(why)).add(controller, group)
    for controller, why, group in waiting:
        if cause := next((it for it in causes.values() if it.holds_up(_names(group))), None):
            many = plural(group.get("count"), _noun(controller))
            cause.symptoms.append(f"{controller}: {many} wait: {why}.")
    return [*causes.values()]


def find_outage(workers: list[Json]) -> Cause | None:
    """Why workers cannot read the cloud, and what waits for it."""
    return next((cause for cause in _causes(workers) if cause.is_outage), None)


def _outage(workers: list[Json]) -> Cause | None:
    """Of the workers that get no answer, what the one has seen that waits for the longest."""
    outages = [mapping(worker.get("cloud_outage")) for worker in workers]
    if not (found := [outage for outage in outages if outage.get("why")]):
        return None
    longest = max(found, key=lambda outage: number(outage.get("seconds")))
    why = CALL.sub("", str(longest.get("why"))).rstrip(".")
    return Cause(why, True, Severity.CRITICAL, number(longest.get("seconds")))


def _names(group: Json) -> list[str]:
    names = group.get("names")
    return [*map(str, names)] if isinstance(names, list) else []


def _kind(controller: str) -> str:
    return BY_WORKER[controller].explained if controller in BY_WORKER else ""


def _noun(controller: str) -> str:
    kind = _kind(controller)
    return EXPLAINED[kind].kind if kind else "object"


def _section(controller: str) -> str:
    return BY_WORKER[controller].section if controller in BY_WORKER else "workers"


def _of_nodes(uninitialized: StatusPart, causes: list[Cause]) -> Iterator[StatusProblem]:
    """A symptom where the cause is known; else a problem after a minute."""
    first = {str(name): number(s) for name, s in mapping(uninitialized.get("first")).items()}
    if (longest := max(first.values(), default=0.0)) <= INITIALIZATION_THRESHOLD:
        return
    names = sorted(first, key=lambda name: -first[name])
    many = plural(uninitialized.get("count"), "Node")
    sentence = f"{many} not initialized, one for {duration(longest)}"
    if cause := next((it for it in causes if it.holds_up(names)), None):
        cause.severity = Severity.CRITICAL
        cause.symptoms.append(f"{sentence}.")
        return
    page = "operations.md#a-node-stays-tainted"
    yield _named(Severity.CRITICAL, "nodes", sentence, page, "node", names)


def _of_watches(kinds: StatusPart, checks: dict[str, str]) -> Iterator[StatusProblem]:
    """One for each error; the health checks of watches then say the same."""
    broken = defaultdict(list)
    for kind, watch in kinds.items():
        if error := mapping(watch).get("last_error"):
            broken[str(error)].append(str(kind))
    symptoms = tuple(
        f"{it}: {checks.pop(it)}." for it in CHECKS_OF_WATCHES if broken and it in checks
    )
    for error, names in broken.items():
        sentence = f"The API server cannot be watched: {error}. Kinds: {', '.join(names)}."
        page = "operations.md#ccmwatchbroken"
        yield StatusProblem(Severity.CRITICAL, "watches", sentence, page, symptoms=symptoms)


def _of_refusals(workers: list[Json], checks: dict[str, str]) -> Iterator[StatusProblem]:
    """One for each fault that keeps workers from starting."""
    refusing = defaultdict(list)
    for worker in workers:
        faults = worker.get("faults") if worker.get("state") != "skipped" else ()
        for fault in faults if isinstance(faults, list) else ():
            refusing[str(fault)].append(text(worker.get("name")))
    for fault, names in refusing.items():
        symptoms = tuple(f"{name}: {checks.pop(name)}." for name in names if name in checks)
        sentence = f"{fault.rstrip('.')}. Refused to start: {', '.join(names)}."
        page = "operations.md#ccmworkerdown"
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


def _of_deletions(deletions: StatusPart) -> Iterator[StatusProblem]:
    """A freeze is what someone wanted; the others are faults."""
    for why in why_blocked({"frozen": deletions.get("frozen")}):
        yield StatusProblem(Severity.WARNING, "deletions", why, "deletion.md")
    for why in why_blocked({**deletions, "frozen": None}):
        yield StatusProblem(Severity.CRITICAL, "deletions", why, "deletion.md")


def _of_budget(classes: StatusPart, causes: list[Cause]) -> Iterator[StatusProblem]:
    """During an outage, a symptom."""
    for name, limit in classes.items():
        if (state := mapping(limit).get("state")) and state != "closed":
            now, full = (rate(mapping(limit).get(f"{it}per_second")) for it in ("", "full_"))
            sentence = f"Cloud calls of class {name}: {state}, {now} of {full} a second."
            if outage := next((cause for cause in causes if cause.is_outage), None):
                outage.symptoms.append(sentence)
                continue
            severity = Severity.CRITICAL if state == "open" else Severity.WARNING
            page = "operations.md#the-cloud-throttles"
            yield StatusProblem(severity, "budget", sentence, page)


def _of_quarantine(controllers: StatusPart) -> Iterator[StatusProblem]:
    for package, keys in controllers.items():
        controller, names = package.replace("_", "-"), [*map(str, mapping(keys))]
        sentence = f"{plural(len(names), 'object')} of {controller} in quarantine"
        page = "operations.md#ccmkeysquarantined"
        yield _named(Severity.WARNING, "quarantine", sentence, page, _kind(controller), names)


def _of_identities(accounts: StatusPart) -> Iterator[StatusProblem]:
    for account, identity in accounts.items():
        if error := mapping(identity).get("last_error"):
            sentence = f"No new token for {account}: {error}"
            yield StatusProblem(Severity.CRITICAL, "identities", sentence, "permissions.md")
