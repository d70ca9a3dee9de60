"""Asking the API server about clients: one deadline, few retries, answers kept for a while."""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping

log = logging.getLogger(__name__)

A = TypeVar("A")

DEADLINE = 10.0  # seconds for one question, whatever happens to it
PAUSES = (0.5, 0.75, 1.125, 1.6875)  # seconds between the tries, as upstream
JITTER = 0.2
MOST = 1024  # answers kept

KINDS = {
    "token": ("/apis/authentication.k8s.io/v1/tokenreviews", "TokenReview"),
    "access": ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview"),
}


class ReviewFailed(Exception):
    """The API server gave no usable answer: nobody gets in on that."""


async def review(kube: Kube, kind: str, spec: Json) -> Mapping[str, Any]:
    """The `status` of a review of this kind; raises `ReviewFailed` within ten seconds."""
    path, name = KINDS[kind]
    group = path.split("/")[2]
    body = {"apiVersion": f"{group}/v1", "kind": name, "spec": spec}
    try:
        async with asyncio.timeout(DEADLINE):
            answer = await _ask(kube, path, body)
    except (TimeoutError, KubernetesError, Unreachable) as error:
        why = str(error) or f"no answer within {DEADLINE:g} s"
        raise ReviewFailed(f"{name}: {why}") from error
    return mapping(answer.get("status"))


async def _ask(kube: Kube, path: str, body: Json) -> Json:
    for pause in PAUSES:
        try:
            return await kube.post(path, body, DEADLINE)
        except KubernetesError as error:
            if error.status < 500 and error.status != 429:
                raise
        except Unreachable:
            pass
        await asyncio.sleep(pause * random.uniform(1.0, 1.0 + JITTER))
    return await kube.post(path, body, DEADLINE)


@dataclass(slots=True)
class _Kept(Generic[A]):
    answer: A
    until: float


class Answers(Generic[A]):
    """Answers by question. A question that is under way is shared by all who have it.

    `seconds` says how long an answer counts; a failure counts for those who wait for it only.
    """

    def __init__(self, seconds: Callable[[A], float]) -> None:
        self._seconds = seconds
        self._kept: OrderedDict[Hashable, _Kept[A]] = OrderedDict()
        self._under_way: dict[Hashable, asyncio.Task[A]] = {}

    async def get(self, question: Hashable, ask: Callable[[], Awaitable[A]]) -> A:
        """The answer; whoever leaves while it is under way leaves the others to it."""
        kept = self._kept.get(question)
        if kept and time.monotonic() < kept.until:
            return kept.answer
        if (task := self._under_way.get(question)) is None:
            task = asyncio.create_task(self._ask(question, ask))
            task.add_done_callback(_look_at)
            self._under_way[question] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, question: Hashable, ask: Callable[[], Awaitable[A]]) -> A:
        try:
            answer = await ask()
        finally:
            del self._under_way[question]
        self._kept[question] = _Kept(answer, time.monotonic() + self._seconds(answer))
        self._kept.move_to_end(question)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return answer


def _look_at(task: "asyncio.Task[Any]") -> None:
    """Take note of a failure that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
