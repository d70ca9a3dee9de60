"""The deletion governor: hears what node workers propose, permits what the table lets through.

It deletes nothing itself, and it believes only its own watch about whether a Node is Ready. All
methods run in one loop. The one thing it keeps on disk is `State`.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import assert_never

from ccm.bus.frames import PermitDeletions, ProposeDeletions
from ccm.decide.deletion import (
    CALM_ROUNDS,
    RULES,
    Case,
    GoneAnswer,
    Held,
    History,
    Hold,
    Never,
    NotYet,
    ObservedNode,
    Permit,
    Policy,
    Round,
    Said,
    Situation,
    Verdict,
    add_gone,
    decide,
    interrupted,
    is_over,
    read_round,
    weigh,
)
from ccm.model.objects import Json
from ccm.settings import Settings
from ccm.supervisor.deletion_state import Freeze, State, read_state, write_state

log = logging.getLogger(__name__)

SHOWN = 50  # candidates that `status` lists


def policy_of(settings: Settings) -> Policy:
    """The policy that the flags ask for."""
    number, _, share = settings.node_deletion_limit.partition(",")
    return Policy(
        period=settings.node_monitor_period,
        limit=int(number),
        limit_percent=float(share.rstrip("%") or 0),
        window=settings.node_deletion_window,
        vanish_share=settings.node_vanish_share,
    )


@dataclass(frozen=True, slots=True)
class Views:
    """What the supervisor sees by itself: a Node by name, and how many there are."""

    look: Callable[[str], ObservedNode | None]
    total: Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was said of one Node. `is_accepted`: a person said that its vanishing is all right."""

    history: History
    heard_at: float
    is_vanished: bool = False
    is_accepted: bool = False

    @property
    def is_vanished_in_doubt(self) -> bool:
        return self.is_vanished and not self.is_accepted

    def interrupt(self, said: Said, now: float) -> "_Known":
        return replace(self, history=interrupted(self.history, said, now))


class Governor:
    """Permits deletions, one round of one worker at a time.

    A worker reports every round, also one about no nodes: the others' permits wait for it. `warn`
    gets a reason and a message, once for each time that deletions stop by themselves.
    """

    def __init__(
        self,
        policy: Policy,
        path: Path,
        views: Views,
        warn: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._path, self._views = policy, path, views
        self._warn, self._clock = warn, clock
        self._known: dict[str, _Known] = {}
        self._rounds: dict[str, float] = {}  # worker → when it reported last
        self._permits: dict[str, float] = {}  # UID → when, within the window
        self._freeze: Freeze | None = None
        self._hold: Hold | None = None
        self._trouble = ""  # why the state file is of no use
        self._counts: Counter[str] = Counter()
        self._load()

    def on_message(self, worker: str, message: ProposeDeletions) -> PermitDeletions:
        """Take in a round and answer which of its Nodes may be deleted, once and now."""
        now = self._clock()
        self._tidy(now)
        heard = read_round(message.asked, message.gone, message.not_gone)
        if heard is None:
            self._counts["not understood"] += 1
            log.error("proposal of deletions not understood", extra={"worker": worker})
            self._distrust(worker, now)
            return PermitDeletions([])
        self._rounds[worker] = now
        self._take_in(worker, heard, now)
        self._follow_hold(worker, now)
        permitted = self._permit(heard, now)
        return PermitDeletions([[item.name, item.uid, item.evidence] for item in permitted])

    def forget(self, worker: str) -> None:
        """The worker is gone, and with it what it said; its vanished nodes count for a while."""
        self._rounds.pop(worker, None)
        self._distrust(worker, self._clock())

    def freeze(self, why: str, by: str = "") -> str:
        """Stop all deletions until `allow`, also after a restart; the answer is for a person."""
        self._freeze = Freeze(why, by, _stamp())
        log.warning("deletions frozen", extra={"why": why, "by": by})
        if self._save():
            return "no node is deleted until 'ccm-supervisor deletions allow'"
        return f"no node is deleted for now, but a restart may forget it: {self._trouble}"

    def allow(self) -> str:
        """Lift the freeze and the hold; the nodes gone at this moment are no doubt any more."""
        before, self._freeze = self._freeze, None
        if not self._save():
            self._freeze = before
            return f"deletions are still stopped: {self._trouble}"
        if self._hold:
            self._lift("a person allowed deletions", self._clock())
        for name, known in self._known.items():
            self._known[name] = replace(known, is_accepted=known.is_vanished)
        log.info("deletions allowed")
        return "nodes that the cloud says twice are gone are deleted, within the limit"

    def answer(self, request: Json) -> Json:
        """The control command `deletions`."""
        match request.get("action"):
            case "show":
                return self.status(self._clock())
            case "freeze":
                why, by = request.get("reason"), request.get("by")
                said = self.freeze(str(why or "no reason given"), str(by or "unknown"))
            case "allow":
                said = self.allow()
            case other:
                return {"error": f"unknown action {other!r}; use show, freeze or allow"}
        return {"error" if self._trouble else "ok": said}

    def status(self, now: float) -> Json:
        """What `status` shows; `proposed` and `permitted` count from the start, `held` is now."""
        candidates = list(self._candidates(now))
        permits = [at for at in self._permits.values() if now - at < self._policy.window]
        limit = self._policy.budget(self._views.total())
        freeze = self._freeze
        return {
            "frozen": {"why": freeze.why, "by": freeze.by, "at": freeze.at} if freeze else None,
            "trouble": self._trouble,
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
                "left": max(limit - len(permits), 0),
                "window_seconds": self._policy.window,
            },
            "vanished": self._situation().vanished,
            "candidates": candidates[:SHOWN],
            "more_candidates": max(len(candidates) - SHOWN, 0),
        }

    def verdict(self, name: str) -> Json | None:
        """What stands in the way of deleting this Node; None when nobody says that it is gone."""
        known = self._known.get(name)
        if known is None or not known.is_vanished:
            return None
        now = self._clock()
        described = _describe(self._judge(name, self._situation(), now), now)
        for rule in RULES:
            if rule.reason == described["reason"]:
                described |= {"meaning": rule.meaning, "remedy": rule.remedy}
        return described

    def _tidy(self, now: float) -> None:
        silent_since = now - self._policy.silence
        self._rounds = {name: at for name, at in self._rounds.items() if at > silent_since}
        self._known = {n: k for n, k in self._known.items() if k.heard_at > silent_since}
        left = {uid: at for uid, at in self._permits.items() if now - at < self._policy.window}
        is_fewer, self._permits = len(left) < len(self._permits), left
        if is_fewer or self._trouble:
            self._save()

    def _distrust(self, worker: str, now: float) -> None:
        for name, known in self._known.items():
            if known.history.worker == worker and known.history.said is Said.GONE:
                self._known[name] = known.interrupt(Said.NOTHING, now)

    def _take_in(self, worker: str, heard: Round, now: float) -> None:
        for name in heard.not_gone:
            known = self._known.get(name) or _Known(History("", worker), now)
            self._known[name] = _Known(known.history, now).interrupt(Said.NOT_GONE, now)
        for answer in heard.gone:
            self._take_in_gone(worker, answer, now)
        for name, known in self._known.items():
            if known.history.said is not Said.GONE:
                continue
            seen = self._views.look(name)
            is_left_out = known.history.worker == worker and known.heard_at < now
            if is_left_out or (seen and seen.is_ready):
                self._known[name] = known.interrupt(Said.NOTHING, now)

    def _take_in_gone(self, worker: str, answer: GoneAnswer, now: float) -> None:
        known = self._known.get(answer.name)
        before = known.history if known else None
        history = add_gone(before, answer, worker, self._policy, now)
        is_accepted = known is not None and known.is_accepted and known.history.uid == answer.uid
        self._known[answer.name] = _Known(history, now, True, is_accepted)
        if known is None or not known.is_vanished:
            self._counts["proposed"] += 1

    def _situation(self) -> Situation:
        doubted = [n for n, known in self._known.items() if known.is_vanished_in_doubt]
        deleted = sum(self._views.look(name) is None for name in doubted)
        return Situation(
            total=self._views.total() + deleted,
            vanished=len(doubted),
            permits=tuple(self._permits.values()),
            is_frozen=self._freeze is not None or bool(self._trouble),
            is_held=self._hold is not None,
            all_heard_since=min(self._rounds.values(), default=float("-inf")),
        )

    def _follow_hold(self, worker: str, now: float) -> None:
        before = self._hold
        self._hold = weigh(before, self._situation(), worker, self._policy, now)
        if self._hold and not before:
            log.warning("deletions held", extra={"why": _why_held(self._hold)})
            self._warn("NodeDeletionsHeld", _why_held(self._hold))
        elif self._hold and is_over(self._hold, self._rounds, self._policy, now):
            self._lift(f"{CALM_ROUNDS} calm rounds of every node worker", now)

    def _lift(self, why: str, now: float) -> None:
        """End the hold. What was said while the cloud was in doubt does not count afterwards."""
        self._hold = None
        log.info("deletions no longer held", extra={"why": why})
        for name, known in self._known.items():
            if known.history.said is Said.GONE:
                self._known[name] = known.interrupt(Said.NOTHING, now)

    def _judge(self, name: str, situation: Situation, now: float) -> Verdict:
        """The verdict on one Node, whose own earlier permit does not use up its budget."""
        history = self._known[name].history
        if history.uid in self._permits:
            others = (at for uid, at in self._permits.items() if uid != history.uid)
            situation = replace(situation, permits=tuple(others))
        return decide(Case(history, self._views.look(name), situation, self._policy, now))

    def _permit(self, heard: Round, now: float) -> list[GoneAnswer]:
        """The Nodes of the round that may go, the longest gone first; on disk before it is said."""
        before, situation, chosen = dict(self._permits), self._situation(), []
        for answer in sorted(heard.gone, key=lambda a: self._known[a.name].history.first):
            if self._judge(answer.name, situation, now) == Permit():
                self._permits[answer.uid] = now
                situation = replace(situation, permits=tuple(self._permits.values()))
                chosen.append(answer)
        if chosen and not self._save():
            self._permits = before
            return []
        for answer in chosen:
            self._known[answer.name] = self._known[answer.name].interrupt(Said.NOTHING, now)
            self._counts["permitted"] += 1
            log.info("deletion permitted", extra={"node": answer.name, "why": answer.evidence})
        return chosen

    def _candidates(self, now: float) -> Iterator[Json]:
        """Every Node that vanished and is still there, with what stands in its way."""
        situation = self._situation()
        for name in sorted(name for name, known in self._known.items() if known.is_vanished):
            if self._views.look(name) is not None:
                yield {"node": name, **_describe(self._judge(name, situation, now), now)}

    # The state file.

    def _load(self) -> None:
        """Permits count as given now: their age is unknown, and this errs towards fewer."""
        try:
            state = read_state(self._path)
        except (OSError, ValueError) as error:
            why = f"the state file {self._path} cannot be read: {error}"
            self._freeze = Freeze(why, "ccm-supervisor", _stamp())
            log.error("deletions frozen", extra={"why": why, "remedy": "deletions allow"})
            return
        self._freeze = state.freeze
        self._permits = dict.fromkeys(state.permitted, self._clock())
        self._save()

    def _save(self) -> bool:
        try:
            write_state(self._path, State(self._freeze, tuple(self._permits)))
        except OSError as error:
            if not self._trouble:
                log.error("deletions stopped: state not written", extra={"error": str(error)})
            self._trouble = f"the state file {self._path} cannot be written: {error}"
            return False
        self._trouble = ""
        return True


def _describe(verdict: Verdict, now: float) -> Json:
    match verdict:
        case Permit():
            return {"verdict": "permit", "reason": "with the next round"}
        case Never(why):
            return {"verdict": "never", "reason": why}
        case Held(why):
            return {"verdict": "held", "reason": why}
        case NotYet(why, until):
            left = max(until - now, 0.0)
            return {"verdict": "not yet", "reason": why, "seconds": round(left, 1)}
    assert_never(verdict)


def _why_held(hold: Hold) -> str:
    return (
        f"{hold.vanished} of {hold.total} nodes vanished from the cloud at once: none is deleted"
        f" until {CALM_ROUNDS} calm rounds have passed or a person runs"
        " 'ccm-supervisor deletions allow'"
    )


def _stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
