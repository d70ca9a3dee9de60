"""The deletion governor: takes what node workers propose and permits what the table allows.

It deletes nothing itself, and whether a Node is Ready it learns from the supervisor's own watch
only. All methods run in one event loop. What it keeps on disk is `DeletionState`.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ccm.bus.frames import PermitDeletions, ProposeDeletions
from ccm.decide.deletion import (
    DELETION_RULES,
    HEALTHY_PASSES,
    Candidate,
    ClusterState,
    DeletionDecision,
    DeletionPolicy,
    GoneHistory,
    Hold,
    LastAnswer,
    ObservedNode,
    Verdict,
    evaluate,
    extend,
    has_recovered,
    interrupt,
    update_hold,
)
from ccm.decide.deletion_report import GoneAnswer, PassReport, parse_report
from ccm.model.objects import Json
from ccm.model.status import DeletionCandidate, DeletionStatus, DeletionVerdict, SpentPermit
from ccm.settings import Settings
from ccm.supervisor.deletion_state import (
    DeletionState,
    Freeze,
    new_freeze,
    read_state,
    write_state,
)

log = logging.getLogger(__name__)

CANDIDATES_SHOWN = 50  # in `status`
NEVER = float("inf")


def policy_of(settings: Settings) -> DeletionPolicy:
    """The policy that the flags ask for."""
    number, _, share = settings.node_deletion_limit.partition(",")
    return DeletionPolicy(
        period=settings.node_monitor_period,
        confirmation=settings.node_deletion_confirmation_period,
        limit=int(number),
        limit_percent=float(share.rstrip("%") or 0),
        window=settings.node_deletion_window,
        vanish_share=settings.node_vanish_share,
    )


class Nodes(Protocol):
    """The Nodes as the supervisor's own watch shows them (`ccm.supervisor.nodes.NodeLister`)."""

    def get(self, name: str) -> ObservedNode | None:
        """The Node of this name."""

    def count(self) -> int:
        """How many there are."""


@dataclass(frozen=True, slots=True)
class _Record:
    """What was reported of one Node. `is_accepted`: a person said that its loss is all right.

    `has_provider_id`: it was a machine's; of any other Node, "gone" puts no answer in doubt.
    `ready_since`: since when it was reported gone and is Ready all the same.
    """

    history: GoneHistory
    reported_at: float
    is_vanished: bool = False
    is_accepted: bool = False
    has_provider_id: bool = True
    ready_since: float = NEVER

    @property
    def is_doubted(self) -> bool:
        return self.is_vanished and self.has_provider_id and not self.is_accepted

    def interrupt(self, answer: LastAnswer, now: float) -> "_Record":
        return replace(self, history=interrupt(self.history, answer, now))


@dataclass(frozen=True, slots=True)
class _PermitRecord:
    """Those of one name within the window: however many, they count once in the budget."""

    last: float
    times: int = 1


class DeletionGovernor:
    """Permits deletions, one pass of one worker at a time.

    A worker reports every pass, also one about no nodes: the others' permits wait for it. `warn`
    gets a reason and a message, once for each time that deletions stop by themselves.
    `shared_freeze` is the one for all replicas; the file may have one for this replica alone.
    """

    def __init__(
        self,
        policy: DeletionPolicy,
        path: Path,
        nodes: Nodes,
        warn: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
        shared_freeze: Callable[[], Freeze | None] = lambda: None,
    ) -> None:
        self._policy, self._path, self._nodes = policy, path, nodes
        self._shared_freeze = shared_freeze
        self._warn, self._clock = warn, clock
        self._records: dict[str, _Record] = {}  # by name of the Node
        self._reported_at: dict[str, float] = {}  # worker → its last pass
        self._permits: dict[str, _PermitRecord] = {}  # by name of the Node
        self._freeze: Freeze | None = None
        self._hold: Hold | None = None
        self._error = ""  # why the state file is of no use
        self._counts: Counter[str] = Counter()
        self._load()

    def on_message(self, worker: str, message: ProposeDeletions) -> PermitDeletions:
        """Take a pass and answer which of its Nodes may be deleted, once and now."""
        now = self._clock()
        self._expire(now)
        reported = parse_report(message.asked, message.gone, message.not_gone)
        if reported is None:
            self._counts["not understood"] += 1
            log.error("proposal of deletions not understood", extra={"worker": worker})
            self._discard_answers_of(worker, now)
            return PermitDeletions([])
        self._reported_at[worker] = now
        self._record_pass(worker, reported, now)
        self._update_hold(worker, now)
        permitted = self._permit(reported, now)
        return PermitDeletions([[item.name, item.uid, item.evidence] for item in permitted])

    def forget(self, worker: str) -> None:
        """The worker is gone: its answers no longer count, its vanished nodes do for a while."""
        self._reported_at.pop(worker, None)
        self._discard_answers_of(worker, self._clock())

    def freeze(self, freeze: Freeze) -> Json:
        """Stop all deletions of this replica until `allow`, also after a restart."""
        self._freeze = freeze
        log.warning("deletions frozen", extra={"why": freeze.why, "by": freeze.by})
        if self._save():
            return {"ok": "no node is deleted until 'ccm-supervisor deletions allow'"}
        return {"error": f"no node is deleted for now, but a restart may forget it: {self._error}"}

    def allow(self) -> Json:
        """Lift the freeze and the hold, and accept the loss of the nodes gone at this moment."""
        before, self._freeze = self._freeze, None
        if not self._save():
            self._freeze = before
            return {"error": f"deletions are still stopped: {self._error}"}
        if self._hold:
            self._lift_hold("a person allowed deletions", self._clock())
        for name, record in self._records.items():
            self._records[name] = replace(record, is_accepted=record.is_vanished)
        log.info("deletions allowed")
        return {"ok": "nodes that the cloud still reports gone are deleted, within the limit"}

    def show(self) -> DeletionStatus:
        """The status as it is now."""
        return self.status(self._clock())

    def status(self, now: float) -> DeletionStatus:
        """The part `deletions`; `proposed` and `permitted` count from the start, `held` is now."""
        candidates = list(self._candidates(now))
        spent: list[SpentPermit] = [
            {"node": name, "seconds_ago": round(now - permits.last, 1), "times": permits.times}
            for name, permits in reversed(self._permits.items())
            if now - permits.last < self._policy.window
        ]
        limit = self._policy.budget(self._nodes.count())
        freeze = self._shared_freeze() or self._freeze
        return {
            "frozen": {"why": freeze.why, "by": freeze.by, "at": freeze.at} if freeze else None,
            "last_error": self._error,
            "held": _why_held(self._hold) if self._hold else "",
            "held_seconds": round(now - self._hold.since, 1) if self._hold else 0.0,
            "counts": {
                "proposed": self._counts["proposed"],
                "held": sum(item["verdict"] == "held" for item in candidates),
                "permitted": self._counts["permitted"],
                "not_understood": self._counts["not understood"],
            },
            "budget": {
                "limit": limit,
                "left": max(limit - len(spent), 0),
                "window_seconds": self._policy.window,
                "spent": spent[:CANDIDATES_SHOWN],
            },
            "vanished": self._cluster().vanished,
            "candidates": candidates[:CANDIDATES_SHOWN],
            "more_candidates": max(len(candidates) - CANDIDATES_SHOWN, 0),
        }

    def verdict(self, name: str) -> DeletionVerdict | None:
        """Why this Node is not deleted; None when no worker reports that its machine is gone."""
        record = self._records.get(name)
        if record is None or not record.is_vanished:
            return None
        now = self._clock()
        described = _describe(self._evaluate(name, self._cluster(), now), now)
        for rule in DELETION_RULES:
            if rule.reason == described["reason"]:
                described["meaning"], described["remedy"] = rule.meaning, rule.remedy
        return described

    def _expire(self, now: float) -> None:
        oldest = now - self._policy.forget_after
        self._reported_at = {name: at for name, at in self._reported_at.items() if at > oldest}
        self._records = {
            name: record
            for name, record in self._records.items()
            if record.reported_at > oldest or self._is_still_accepted(name, record)
        }
        left = {n: p for n, p in self._permits.items() if now - p.last < self._policy.window}
        is_fewer, self._permits = len(left) < len(self._permits), left
        if is_fewer or self._error:
            self._save()

    def _is_still_accepted(self, name: str, record: _Record) -> bool:
        """Whether a person accepted the loss of this Node, which is still there: Ready, perhaps.

        It is asked about again only when another one is gone, and would hold that one's deletion.
        """
        node = self._nodes.get(name)
        return record.is_accepted and node is not None and node.uid == record.history.uid

    def _discard_answers_of(self, worker: str, now: float) -> None:
        for name, record in self._records.items():
            if record.history.worker == worker and record.history.answer is LastAnswer.GONE:
                self._records[name] = record.interrupt(LastAnswer.NONE, now)

    def _record_pass(self, worker: str, reported: PassReport, now: float) -> None:
        for name in reported.not_gone:
            record = self._records.get(name) or _Record(GoneHistory("", worker), now)
            self._records[name] = _Record(record.history, now).interrupt(LastAnswer.NOT_GONE, now)
        for answer in reported.gone:
            self._record_gone(worker, answer, now)
        for name, record in self._records.items():
            if record.history.answer is not LastAnswer.GONE:
                continue
            node = self._nodes.get(name)
            is_left_out = record.history.worker == worker and record.reported_at < now
            is_about_a_name = node is not None and not node.has_provider_id
            if is_about_a_name or is_left_out or (node and node.is_ready):
                self._records[name] = record.interrupt(LastAnswer.NONE, now)

    def _record_gone(self, worker: str, answer: GoneAnswer, now: float) -> None:
        record = self._records.get(answer.name)
        history = extend(record.history if record else None, answer, worker, self._policy, now)
        is_accepted = record is not None and record.is_accepted and record.history.uid == answer.uid
        node = self._nodes.get(answer.name)
        has_provider_id, since = node is None or node.has_provider_id, NEVER
        if node and node.is_ready:
            since = min(record.ready_since, now) if record else now
        self._records[answer.name] = _Record(
            history, now, True, is_accepted, has_provider_id, since
        )
        if since == NEVER and (record is None or not record.is_vanished):
            self._counts["proposed"] += 1

    def _cluster(self) -> ClusterState:
        vanished = {name: record for name, record in self._records.items() if record.is_doubted}
        nodes = {name: self._nodes.get(name) for name in vanished}
        return ClusterState(
            total=self._nodes.count() + sum(node is None for node in nodes.values()),
            vanished=len(vanished),
            permits=self._permitted_at(),
            is_frozen=bool(self._shared_freeze() or self._freeze or self._error),
            is_held=self._hold is not None,
            all_heard_since=min(self._reported_at.values(), default=float("-inf")),
            ready_gone=tuple(
                vanished[name].ready_since for name, node in nodes.items() if node and node.is_ready
            ),
        )

    def _permitted_at(self, besides: str = "") -> tuple[float, ...]:
        return tuple(permits.last for name, permits in self._permits.items() if name != besides)

    def _update_hold(self, worker: str, now: float) -> None:
        before = self._hold
        self._hold = update_hold(before, self._cluster(), worker, self._policy, now)
        if self._hold and not before:
            log.warning("deletions held", extra={"why": _why_held(self._hold)})
            self._warn("NodeDeletionsHeld", _why_held(self._hold))
        elif self._hold and has_recovered(self._hold, self._reported_at, self._policy, now):
            self._lift_hold(f"{HEALTHY_PASSES} healthy passes of every node worker", now)

    def _lift_hold(self, why: str, now: float) -> None:
        """End the hold. Answers from the time when the cloud was in doubt no longer count."""
        self._hold = None
        log.info("deletions no longer held", extra={"why": why})
        for name, record in self._records.items():
            if record.history.answer is LastAnswer.GONE:
                self._records[name] = record.interrupt(LastAnswer.NONE, now)

    def _evaluate(self, name: str, cluster: ClusterState, now: float) -> Verdict:
        """The verdict on one Node, whose own earlier permits do not use up its budget."""
        if name in self._permits:
            cluster = replace(cluster, permits=self._permitted_at(besides=name))
        history = self._records[name].history
        return evaluate(Candidate(history, self._nodes.get(name), cluster, self._policy, now))

    def _permit(self, reported: PassReport, now: float) -> list[GoneAnswer]:
        """The Nodes that may be deleted, the oldest first; on disk before they are named.

        A kubelet may register any number, but none that is older than the others.
        """
        before, cluster, chosen = dict(self._permits), self._cluster(), []
        for answer in sorted(reported.gone, key=self._turn):
            if self._evaluate(answer.name, cluster, now).decision is DeletionDecision.PERMIT:
                earlier = self._permits.pop(answer.name, _PermitRecord(now, 0))
                self._permits[answer.name] = _PermitRecord(now, earlier.times + 1)
                cluster = replace(cluster, permits=self._permitted_at())
                chosen.append(answer)
        if chosen and not self._save():
            self._permits = before
            return []
        for answer in chosen:
            record = self._records[answer.name]
            self._records[answer.name] = record.interrupt(LastAnswer.NONE, now)
            self._counts["permitted"] += 1
            log.info("deletion permitted", extra={"node": answer.name, "why": answer.evidence})
        return chosen

    def _turn(self, answer: GoneAnswer) -> tuple[str, float]:
        node = self._nodes.get(answer.name)
        return node.created if node else "", self._records[answer.name].history.first

    def _candidates(self, now: float) -> Iterator[DeletionCandidate]:
        """Every Node that vanished from the cloud and still exists, with its verdict."""
        cluster = self._cluster()
        for name in sorted(name for name, record in self._records.items() if record.is_vanished):
            if self._nodes.get(name) is not None:
                yield {"node": name, **_describe(self._evaluate(name, cluster, now), now)}

    # The state file.

    def _load(self) -> None:
        """Permits count as given now: their age is unknown, and this errs towards fewer."""
        try:
            state = read_state(self._path)
        except (OSError, ValueError) as error:
            why = f"the state file {self._path} cannot be read: {error}"
            self._freeze = new_freeze(why, "ccm-supervisor")
            log.error("deletions frozen", extra={"why": why, "remedy": "deletions allow"})
            return
        self._freeze = state.freeze
        self._permits = dict.fromkeys(state.permitted, _PermitRecord(self._clock()))
        self._save()

    def _save(self) -> bool:
        try:
            write_state(self._path, DeletionState(self._freeze, tuple(self._permits)))
        except OSError as error:
            if not self._error:
                log.error("deletions stopped: state not written", extra={"error": str(error)})
            self._error = f"the state file {self._path} cannot be written: {error}"
            return False
        self._error = ""
        return True


def _describe(verdict: Verdict, now: float) -> DeletionVerdict:
    why = verdict.why or "with the next pass"
    described: DeletionVerdict = {"verdict": verdict.decision, "reason": why}
    if verdict.decision is DeletionDecision.NOT_YET:
        described["seconds"] = round(max(verdict.until - now, 0.0), 1)
    return described


def _why_held(hold: Hold) -> str:
    ready = f", {hold.ready} of them Ready" if hold.ready else ""
    return (
        f"{hold.vanished} of {hold.total} nodes vanished from the cloud{ready}: none is deleted"
        f" until {HEALTHY_PASSES} healthy passes have been made or a person runs"
        " 'ccm-supervisor deletions allow'"
    )
