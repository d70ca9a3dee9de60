"""Which Nodes may be deleted: the table of doubts, and how evidence and a hold grow and end.

It deletes nothing. A Node may go when no rule of `RULES` stops it, and only then.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

ALWAYS_PLAUSIBLE = 1  # nodes that may vanish at once in a cluster of any size
CALM_ROUNDS = 3  # rounds of every node worker without a mass, before a hold ends by itself


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator set; seconds. The budget is the larger of `limit` and `limit_percent`."""

    period: float
    limit: int
    limit_percent: float
    window: float
    vanish_share: float

    @property
    def fresh(self) -> float:
        """The oldest an answer may be; a page of a large round waits for its cloud call."""
        return max(2 * self.period, 30.0)

    @property
    def silence(self) -> float:
        """After this long without an answer, what was said before counts no more."""
        return max(6 * self.period, 60.0)

    def budget(self, total: int) -> int:
        """Nodes that may be deleted within one window."""
        return max(self.limit, int(total * self.limit_percent / 100))

    def is_mass(self, vanished: int, total: int) -> bool:
        """Whether so many gone at once says more about the cloud's answer than about machines."""
        return vanished > max(ALWAYS_PLAUSIBLE, self.vanish_share * total)


@dataclass(frozen=True, slots=True)
class GoneAnswer:
    """The cloud positively does not have the machine of this Node."""

    name: str
    uid: str
    evidence: str
    at: float


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one worker: each Node in it once."""

    gone: tuple[GoneAnswer, ...]
    not_gone: tuple[str, ...]


def read_round(asked: object, gone: object, not_gone: object) -> Round | None:
    """The round in a message, or None when anything in it is odd.

    All or nothing: an entry that is left out could be the one that makes a mass, and a Node that
    comes twice would be its own confirmation.
    """
    if not isinstance(gone, list) or not isinstance(not_gone, list) or type(asked) is not int:
        return None
    answers = [GoneAnswer(*entry) for entry in gone if _is_gone_entry(entry)]
    names = [*(answer.name for answer in answers), *(n for n in not_gone if _is_name(n))]
    is_complete = len(names) == len(gone) + len(not_gone) <= asked
    if not is_complete or len(set(names)) < len(names):
        return None
    return Round(tuple(answers), tuple(not_gone))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_gone_entry(entry: object) -> bool:
    match entry:
        case [name, uid, str(), int() | float() as at]:
            return _is_name(name) and _is_name(uid) and not isinstance(at, bool)
    return False


class Said(StrEnum):
    """The cloud's last word on a machine, as far as it can be used."""

    GONE = "gone"
    NOT_GONE = "not gone"  # it exists, or the answer was Unknown
    NOTHING = "nothing"  # no answer yet, or none that counts


@dataclass(frozen=True, slots=True)
class History:
    """What the cloud said of one Node through one worker: an unbroken run of "gone", or none.

    The run goes from the answer at `first` to the one at `last`. Only answers later than `after`
    count, so that an old one that arrives late cannot outlive what contradicted it.
    """

    uid: str
    worker: str
    said: Said = Said.NOTHING
    after: float = float("-inf")
    first: float = 0.0
    last: float = 0.0


def interrupted(before: History, said: Said, now: float) -> History:
    """The run ends: contradicted, used up, or its witness is gone."""
    return replace(before, said=said, after=now)


def add_gone(
    before: History | None, answer: GoneAnswer, worker: str, policy: Policy, now: float
) -> History:
    """What is known after `answer` came in at `now`.

    A run goes on only with an answer of the same worker about the same UID, before a silence. An
    answer that is too old, or from the future, adds nothing.
    """
    run = History(answer.uid, worker, Said.GONE, first=answer.at, last=answer.at)
    if before is None:
        before = replace(run, said=Said.NOTHING)
    is_fresh = now - policy.fresh <= answer.at <= now
    if not is_fresh or answer.at <= before.after:
        return before
    goes_on = (
        before.said is Said.GONE
        and (before.uid, before.worker) == (answer.uid, worker)
        and answer.at - before.last <= policy.silence
    )
    if not goes_on:
        return replace(run, after=before.after)
    return replace(before, last=max(before.last, answer.at))


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """What the supervisor itself sees of a Node, whatever a worker says."""

    uid: str
    is_ready: bool
    is_foreign: bool
    has_provider_id: bool


@dataclass(frozen=True, slots=True)
class Situation:
    """What holds for all nodes at this moment.

    `vanished` counts over the rounds of all workers; `permits` are the times of those in the
    window; every node worker reported at `all_heard_since` or later.
    """

    total: int
    vanished: int
    permits: tuple[float, ...]
    is_frozen: bool
    is_held: bool
    all_heard_since: float


@dataclass(frozen=True, slots=True)
class Case:
    """One Node before the table; `seen` is None when the supervisor sees no such Node."""

    history: History
    seen: ObservedNode | None
    situation: Situation
    policy: Policy
    now: float

    @property
    def is_fresh(self) -> bool:
        age = self.now - self.history.last
        return self.history.said is Said.GONE and 0 <= age <= self.policy.fresh

    @property
    def confirmed_from(self) -> float:
        """From when on another "gone" confirms the first."""
        return self.history.first + self.policy.period

    @property
    def budget_from(self) -> float:
        """From when on the window has room for one more deletion."""
        room = self.policy.budget(self.situation.total)
        if len(self.situation.permits) < room:
            return self.now
        if room == 0:
            return float("inf")
        return sorted(self.situation.permits)[-room] + self.policy.window


class Reason(StrEnum):
    """Why a Node is not deleted, as `status` and the log say it."""

    NO_SUCH_NODE = "no-such-node"
    READY = "ready"
    FOREIGN = "foreign"
    NO_PROVIDER_ID = "no-provider-id"
    NOT_GONE = "not-gone"
    FROZEN = "frozen"
    MANY_VANISHED = "many-vanished"
    NO_FRESH_ANSWER = "no-fresh-answer"
    NOT_CONFIRMED = "not-confirmed"
    WORKERS_NOT_HEARD = "workers-not-heard"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Permit:
    """Delete it, once and now."""


@dataclass(frozen=True, slots=True)
class Never:
    """Not while things are as they are, however long they stay so."""

    why: Reason


@dataclass(frozen=True, slots=True)
class NotYet:
    """Perhaps later, and not before `until`."""

    why: Reason
    until: float


@dataclass(frozen=True, slots=True)
class Held:
    """No node at all may go now."""

    why: Reason


Verdict = Permit | Never | NotYet | Held


@dataclass(frozen=True, slots=True)
class Rule:
    """One doubt. `meaning` and `remedy` are what docs/deletion.md tells the operator."""

    reason: Reason
    verdict: type[Never] | type[Held] | type[NotYet]
    stops: Callable[[Case], bool]
    meaning: str
    remedy: str
    until: Callable[[Case], float] = lambda case: case.now


RULES = (
    Rule(
        Reason.NO_SUCH_NODE,
        Never,
        lambda case: case.seen is None or case.seen.uid != case.history.uid,
        "The supervisor's own watch shows no Node with this name and UID.",
        "Nothing: it is deleted already, or it was created anew and is a different Node.",
    ),
    Rule(
        Reason.READY,
        Never,
        lambda case: case.seen is None or case.seen.is_ready,
        "The Node is Ready.",
        "Its kubelet works, so the cloud's answer is wrong: check account, region and filters.",
    ),
    Rule(
        Reason.FOREIGN,
        Never,
        lambda case: case.seen is None or case.seen.is_foreign,
        "Its provider ID belongs to another cloud.",
        "Nothing, or delete the Node by hand.",
    ),
    Rule(
        Reason.NO_PROVIDER_ID,
        Never,
        lambda case: case.seen is None or not case.seen.has_provider_id,
        "It has no provider ID; that no machine has its name proves nothing.",
        "See why it was not initialised (Events of the Node), or delete it by hand.",
    ),
    Rule(
        Reason.NOT_GONE,
        Never,
        lambda case: case.history.said is Said.NOT_GONE,
        "The cloud's last answer was not “gone”: the machine exists, or the answer was unknown.",
        "Nothing.",
    ),
    Rule(
        Reason.FROZEN,
        Held,
        lambda case: case.situation.is_frozen,
        "A person froze deletions, or the state file cannot be read or written.",
        "`ccm-supervisor deletions` says who and why; mend it, then `deletions allow`.",
    ),
    Rule(
        Reason.MANY_VANISHED,
        Held,
        lambda case: (
            case.situation.is_held
            or case.policy.is_mass(case.situation.vanished, case.situation.total)
        ),
        "More nodes vanished at once than `--node-vanish-share` allows, or did a moment ago.",
        "Check the cloud. If the machines really are gone, `ccm-supervisor deletions allow`.",
    ),
    Rule(
        Reason.NO_FRESH_ANSWER,
        NotYet,
        lambda case: not case.is_fresh,
        "There is no “gone” that is fresh and later than the last contradiction.",
        "Wait. If it lasts, see whether the cloud throttles (`ccm-supervisor status`).",
    ),
    Rule(
        Reason.NOT_CONFIRMED,
        NotYet,
        lambda case: case.history.last < case.confirmed_from,
        "The cloud has not said “gone” twice at least `--node-monitor-period` apart.",
        "Wait for the next round.",
        lambda case: case.confirmed_from,
    ),
    Rule(
        Reason.WORKERS_NOT_HEARD,
        NotYet,
        lambda case: case.situation.all_heard_since < case.history.first,
        "A node worker has not reported since the first “gone”: more may have vanished there.",
        "Wait. If it lasts, see which worker is silent (`ccm-supervisor status`).",
    ),
    Rule(
        Reason.BUDGET,
        NotYet,
        lambda case: case.budget_from > case.now,
        "`--node-deletion-limit` is used up for this `--node-deletion-window`.",
        "Wait, or raise the limit.",
        lambda case: case.budget_from,
    ),
)
"""Every doubt, the strongest first; the first that applies is the verdict."""


def decide(case: Case) -> Verdict:
    """Permit when no rule stops it."""
    for rule in RULES:
        if rule.stops(case):
            if rule.verdict is NotYet:
                return NotYet(rule.reason, rule.until(case))
            return Held(rule.reason) if rule.verdict is Held else Never(rule.reason)
    return Permit()


@dataclass(frozen=True, slots=True)
class Hold:
    """All deletions are stopped since `vanished` of `total` nodes vanished at once.

    `calm` counts the rounds of each worker since `calm_since`, when it was a mass no more.
    """

    since: float
    vanished: int
    total: int
    calm_since: float = float("inf")
    calm: Mapping[str, int] = field(default_factory=dict)


def weigh(
    hold: Hold | None, situation: Situation, worker: str, policy: Policy, now: float
) -> Hold | None:
    """The hold after a round of `worker`, but for its end, which `is_over` tells."""
    if policy.is_mass(situation.vanished, situation.total):
        return Hold(hold.since if hold else now, situation.vanished, situation.total)
    if hold is None:
        return None
    calm = {**hold.calm, worker: hold.calm.get(worker, 0) + 1}
    return replace(hold, calm_since=min(hold.calm_since, now), calm=calm)


def is_over(hold: Hold, workers: Collection[str], policy: Policy, now: float) -> bool:
    """Whether every worker has been calm for `CALM_ROUNDS` rounds, a period apart on average."""
    return now - hold.calm_since >= (CALM_ROUNDS - 1) * policy.period and all(
        hold.calm.get(worker, 0) >= CALM_ROUNDS for worker in workers
    )
