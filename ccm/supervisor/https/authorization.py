"""Whether somebody may: open paths, one group for everything, else the cluster is asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from ccm import metrics
from ccm.counters import Counters
from ccm.kube.client import Kube
from ccm.model.objects import Json, text
from ccm.supervisor.https.authentication import User
from ccm.supervisor.https.reviews import Answers, review

MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class Decision:
    """Yes or no, with the cluster's reason."""

    is_allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ttls:
    """How long a yes and a no count, in seconds."""

    allowed: float
    denied: float


class Authorizer:
    """Decides about verbs on paths; a verb is the HTTP method in small letters."""

    def __init__(
        self, open_paths: Sequence[str], ttls: Ttls, kube: Kube, counters: Counters
    ) -> None:
        self._open, self._kube, self._counters = open_paths, kube, counters
        self._answers: Answers[Decision] = Answers(
            lambda decision: ttls.allowed if decision.is_allowed else ttls.denied
        )

    def is_open(self, path: str) -> bool:
        """Whether anyone may read it, without a word on who he is."""
        return any(
            path.startswith(allowed[:-1]) if allowed.endswith("*") else path == allowed
            for allowed in self._open
        )

    async def decide(self, user: User, verb: str, path: str) -> Decision:
        """Raises `ReviewFailed` when nobody can tell."""
        if MASTERS in user.groups:
            return Decision(True)
        return await self._answers.get((user, verb, path), lambda: self._ask(user, verb, path))

    async def close(self) -> None:
        await self._answers.close()

    async def _ask(self, user: User, verb: str, path: str) -> Decision:
        result = "failed"
        try:
            status = await review(self._kube, "access", _spec(user, verb, path))
            is_allowed = status.get("allowed") is True and status.get("denied") is not True
            result = "yes" if is_allowed else "no"
        finally:
            self._counters.count(metrics.REVIEWS, "access", result)
        return Decision(is_allowed, text(status.get("reason")))


def _spec(user: User, verb: str, path: str) -> Json:
    return {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
        "nonResourceAttributes": {"path": path, "verb": verb},
    }
