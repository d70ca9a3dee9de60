"""Which Nodes may be deleted: the table of rules, and how evidence and a hold begin and end.

It deletes nothing. A Node may be deleted when no rule of `DELETION_RULES` applies, and only then.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ccm.decide.deletion_report import GoneAnswer

PLAUSIBLE_LOSS = 1  # nodes that may vanish at once in a cluster of any size
HEALTHY_PASSES = 3  # of every node worker, without a mass, before a hold ends by itself
UNREADY_AFTER = 60.0  # seconds after which Kubernetes has noticed that a kubelet ended


@dataclass(frozen=True, slots=True)
class DeletionPolicy:
    """The operator's settings; seconds. The budget is the larger of `limit` and `limit_percent`."""

    period: float
    confirmation: float
    limit: int
    limit_percent: float
    window: float
    vanish_share: float

    @property
    def max_answer_age(self) -> float:
        """The oldest an answer may be; a page of a large pass waits for its cloud call."""
        return max(2 * self.period, 30.0)

    @property
    def forget_after(self) -> float:
        """Without an answer for so long, earlier ones no longer count."""
        return max(6 * self.period, 60.0)

    def budget(self, total: int) -> int:
        """Nodes that may be deleted within one window."""
        return max(self.limit, int(total * self.limit_percent / 100))

    def is_mass(self, vanished: int, total: int) -> bool:
        """Whether so many gone at once put the cloud's answers in doubt, not the machines."""
        return vanished > max(PLAUSIBLE_LOSS, self.vanish_share * total)


class LastAnswer(StrEnum):
    """The cloud's last answer about a machine, as far as it can be used."""

    GONE = "gone"
    NOT_GONE = "not gone"  # it exists, or the answer was Unknown
    NONE = "nothing"  # no answer yet, or none that counts


@dataclass(frozen=True, slots=True)
class GoneHistory:
    """What the cloud answered about one Node through one worker: a run of "gone", or none.

    The run goes from the answer at `first` to the one at `last`. Only answers later than `after`
    count, so that an old one that arrives late cannot outlive what contradicted it.
    """

    uid: str
    worker: str
    answer: LastAnswer = LastAnswer.NONE
    after: float = float("-inf")
    first: float = 0.0
    last: float = 0.0
    is_final: bool = False  # of the answer at `last`


def interrupt(before: GoneHistory, answer: LastAnswer, now: float) -> GoneHistory:
    """The run ends: contradicted, used up, or its worker is gone."""
    return replace(before, answer=answer, after=now)


def extend(
    before: GoneHistory | None, answer: GoneAnswer, worker: str, policy: DeletionPolicy, now: float
) -> GoneHistory:
    """The history after `answer` came in at `now`.

    A run goes on only with an answer of the same worker about the same UID, and without a pause of
    `forget_after`. An answer that is too old, or from the future, adds nothing.
    """
    run = GoneHistory(
        answer.uid,
        worker,
        LastAnswer.GONE,
        first=answer.at,
        last=answer.at,
        is_final=answer.is_final,
    )
    if before is None:
        before = replace(run, answer=LastAnswer.NONE)
    is_fresh = now - policy.max_answer_age <= answer.at <= now
    if not is_fresh or answer.at <= before.after:
        return before
    goes_on = (
        before.answer is LastAnswer.GONE
        and (before.uid, before.worker) == (answer.uid, worker)
        and answer.at - before.last <= policy.forget_after
    )
    if not goes_on:
        return replace(run, after=before.after)
    return replace(before, last=max(before.last, answer.at), is_final=answer.is_final)


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A Node as the supervisor's own watch shows it, whatever a worker says."""

    uid: str
    is_ready: bool
    is_foreign: bool
    has_provider_id: bool
    created: str = ""  # as the API server says


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What holds for all nodes at this moment.

    `vanished` counts over the last passes of all workers; `permits` are the times of those in the
    window; every node worker reported at `all_heard_since` or later. `ready_gone` are the times
    since when the cloud calls the machines of Nodes gone that are Ready all the same.
    """

    total: int
    vanished: int
    permits: tuple[float, ...]
    is_frozen: bool
    is_held: bool
    all_heard_since: float
    ready_gone: tuple[float, ...] = ()

    def is_contradicted(self, by: float) -> bool:
        """Whether kubelets are alive whose machines the cloud called gone at `by` or before."""
        return sum(since <= by for since in self.ready_gone) > PLAUSIBLE_LOSS


@dataclass(frozen=True, slots=True)
class Candidate:
    """One Node, and all that the table looks at; `observed` is None when there is no such Node."""

    history: GoneHistory
    observed: ObservedNode | None
    cluster: ClusterState
    policy: DeletionPolicy
    now: float

    @property
    def is_fresh(self) -> bool:
        age = self.now - self.history.last
        return self.history.answer is LastAnswer.GONE and 0 <= age <= self.policy.max_answer_age

    @property
    def confirmed_from(self) -> float:
        """The earliest time of a "gone" that confirms the first; a final one needs no other."""
        if self.history.is_final:
            return self.history.last
        return self.history.first + max(self.policy.period, self.policy.confirmation)

    @property
    def is_contradicted(self) -> bool:
        """Whether the cloud called Ready Nodes gone when it began to call this one gone.

        Of machines that really ended, Kubernetes soon notices; those that ended later are not
        waited for, so that machines which come and go all the time hold up no deletion.
        """
        begin = max(self.policy.confirmation, 4 * self.policy.period)
        return self.cluster.is_contradicted(self.history.first + begin)

    @property
    def budget_from(self) -> float:
        """When the window has room for one more deletion."""
        room = self.policy.budget(self.cluster.total)
        if len(self.cluster.permits) < room:
            return self.now
        if room == 0:
            return float("inf")
        return sorted(self.cluster.permits)[-room] + self.policy.window


class Reason(StrEnum):
    """Why a Node is not deleted, as `status` and the log show it."""

    NO_SUCH_NODE = "no-such-node"
    READY = "ready"
    FOREIGN = "foreign"
    NO_PROVIDER_ID = "no-provider-id"
    NOT_GONE = "not-gone"
    FROZEN = "frozen"
    MANY_VANISHED = "many-vanished"
    READY_NODES_GONE = "ready-nodes-gone"
    NO_FRESH_ANSWER = "no-fresh-answer"
    NOT_CONFIRMED = "not-confirmed"
    WORKERS_NOT_HEARD = "workers-not-heard"
    BUDGET = "budget"


class DeletionDecision(StrEnum):
    """What is decided about deleting a Node, as `status` shows it."""

    PERMIT = "permit"  # it may be deleted, once and now
    NEVER = "never"  # not while things are as they are, for however long
    HELD = "held"  # no Node at all may be deleted now
    NOT_YET = "not yet"  # perhaps later


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision, the reason against a deletion, and the time before which it will not change."""

    decision: DeletionDecision
    why: Reason | None = None
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class DeletionRule:
    """One reason against a deletion; `meaning` and `remedy` are the operator's docs/deletion.md."""

    reason: Reason
    decision: DeletionDecision
    applies: Callable[[Candidate], bool]
    meaning: str
    remedy: str
    until: Callable[[Candidate], float] = lambda node: node.now


DELETION_RULES = (
    DeletionRule(
        Reason.NO_SUCH_NODE,
        DeletionDecision.NEVER,
        lambda node: node.observed is None or node.observed.uid != node.history.uid,
        "The supervisor's own watch shows no Node with this name and UID.",
        "Nothing: it is deleted already, or it was recreated and is a different Node.",
    ),
    DeletionRule(
        Reason.READY,
        DeletionDecision.NEVER,
        lambda node: node.observed is None or node.observed.is_ready,
        "The Node is Ready.",
        "Its kubelet works, so the cloud's answer is wrong: check account, region and filters.",
    ),
    DeletionRule(
        Reason.FOREIGN,
        DeletionDecision.NEVER,
        lambda node: node.observed is None or node.observed.is_foreign,
        "Its provider ID belongs to another cloud.",
        "Nothing, or delete the Node by hand.",
    ),
    DeletionRule(
        Reason.NO_PROVIDER_ID,
        DeletionDecision.NEVER,
        lambda node: node.observed is None or not node.observed.has_provider_id,
        "It has no provider ID; that no machine has its name proves nothing.",
        "See why it was not initialized (Events of the Node), or delete it by hand.",
    ),
    DeletionRule(
        Reason.NOT_GONE,
        DeletionDecision.NEVER,
        lambda node: node.history.answer is LastAnswer.NOT_GONE,
        "The cloud's last answer was not “gone”: the machine exists, or the answer was unknown.",
        "Nothing.",
    ),
    DeletionRule(
        Reason.FROZEN,
        DeletionDecision.HELD,
        lambda node: node.cluster.is_frozen,
        "A person froze deletions, or the state file cannot be read or written.",
        "`ccm-supervisor deletions` shows who and why; fix it, then `deletions allow`.",
    ),
    DeletionRule(
        Reason.MANY_VANISHED,
        DeletionDecision.HELD,
        lambda node: (
            node.cluster.is_held or node.policy.is_mass(node.cluster.vanished, node.cluster.total)
        ),
        "More nodes vanished at once than `--node-vanish-share` allows, or did a moment ago.",
        "Check the cloud. If the machines really are gone, `ccm-supervisor deletions allow`.",
    ),
    DeletionRule(
        Reason.READY_NODES_GONE,
        DeletionDecision.HELD,
        lambda node: node.is_contradicted,
        "When the cloud called it gone, it called other Nodes gone that are Ready.",
        "Wait a minute. If they stay Ready, the cloud is wrong: check account, region and filters.",
    ),
    DeletionRule(
        Reason.NO_FRESH_ANSWER,
        DeletionDecision.NOT_YET,
        lambda node: not node.is_fresh,
        "There is no “gone” that is fresh and later than the last contradiction.",
        "Wait. If it lasts, see whether the cloud throttles (`ccm-supervisor status`).",
    ),
    DeletionRule(
        Reason.NOT_CONFIRMED,
        DeletionDecision.NOT_YET,
        lambda node: node.history.last < node.confirmed_from,
        "The cloud has not reported “gone” for `--node-deletion-confirmation-period` yet, nor that"
        " the machine ended for ever.",
        "Wait.",
        lambda node: node.confirmed_from,
    ),
    DeletionRule(
        Reason.WORKERS_NOT_HEARD,
        DeletionDecision.NOT_YET,
        lambda node: node.cluster.all_heard_since < node.history.first,
        "A node worker has not reported since the first “gone”: more may have vanished there.",
        "Wait. If it lasts, see which worker is silent (`ccm-supervisor status`).",
    ),
    DeletionRule(
        Reason.BUDGET,
        DeletionDecision.NOT_YET,
        lambda node: node.budget_from > node.now,
        "`--node-deletion-limit` is used up for this `--node-deletion-window`.",
        "Wait, or raise the limit.",
        lambda node: node.budget_from,
    ),
)
"""Every reason against a deletion, the strongest first; the first that applies is the verdict."""


def evaluate(node: Candidate) -> Verdict:
    """The verdict of the first rule that applies; without one, the Node may be deleted."""
    for rule in DELETION_RULES:
        if rule.applies(node):
            return Verdict(rule.decision, rule.reason, rule.until(node))
    return Verdict(DeletionDecision.PERMIT)


@dataclass(frozen=True, slots=True)
class Hold:
    """All deletions are stopped since `vanished` of `total` nodes vanished, `ready` of them Ready.

    `healthy` counts the passes of each worker since `healthy_since`, when it was no longer a mass.
    """

    since: float
    vanished: int
    total: int
    ready: int = 0
    healthy_since: float = float("inf")
    healthy: Mapping[str, int] = field(default_factory=dict)


def update_hold(
    hold: Hold | None, cluster: ClusterState, worker: str, policy: DeletionPolicy, now: float
) -> Hold | None:
    """The hold after a pass of `worker`; whether it ends, `has_recovered` says."""
    is_mass = policy.is_mass(cluster.vanished, cluster.total)
    if is_mass or cluster.is_contradicted(now - UNREADY_AFTER):
        since, ready = hold.since if hold else now, len(cluster.ready_gone)
        return Hold(since, cluster.vanished, cluster.total, ready)
    if hold is None:
        return None
    healthy = {**hold.healthy, worker: hold.healthy.get(worker, 0) + 1}
    return replace(hold, healthy_since=min(hold.healthy_since, now), healthy=healthy)


def has_recovered(hold: Hold, workers: Collection[str], policy: DeletionPolicy, now: float) -> bool:
    """Whether every worker had `HEALTHY_PASSES` passes, a period apart on average."""
    return now - hold.healthy_since >= (HEALTHY_PASSES - 1) * policy.period and all(
        hold.healthy.get(worker, 0) >= HEALTHY_PASSES for worker in workers
    )
