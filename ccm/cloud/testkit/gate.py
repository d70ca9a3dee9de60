"""The kit's gate: grants every call, records it, and can interrupt the provider anywhere."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from typing import Any, TypeVar, cast

from ccm.cloud.gate import current_owner, invoke
from ccm.errors import CloudError, NotFound, Unanswered
from ccm.model.objects import Json

T = TypeVar("T")

MARKS = "id", "name", "tags", "description"
"""How the keys end whose values say which and whose a record is."""


class ProcessKilled(BaseException):
    """The provider's process ends here, as by SIGKILL: nothing after this line runs any more."""


class Interruption(StrEnum):
    """What happens to one chosen call."""

    KILLED = "killed after"
    """The call is performed, then the provider's process ends."""
    FAILED = "failed"
    """The call is not performed and raises `CloudError`."""
    LOST = "answer lost"
    """The call is performed and raises `CloudError`."""


NO_ANSWER = (Interruption.FAILED, Interruption.LOST)


@dataclass(frozen=True, slots=True)
class GateCall:
    """One call as the provider named it to its gate."""

    operation: str
    budget: str
    is_write: bool = False


class HeldBack:
    """The calls on behalf of one owner, from the `number`-th on, that wait for their turn.

    `begun` is done once one waits, and they go on once it is `ended`.
    """

    def __init__(self, owner: str, number: int) -> None:
        self._owner, self._left = owner, number
        self.begun, self.ended = Future[None](), Future[None]()

    def waits(self) -> bool:
        """Whether a call that is about to be made is one of them."""
        if current_owner() != self._owner:
            return False
        self._left -= 1
        if self._left == 0:
            self.begun.set_result(None)
        return self._left <= 0


class KitGate:
    """Every call goes at once, within `timeout`; `calls` and `errors` are in the order made.

    `answered` has the operations of answers, in their order.
    """

    def __init__(self, timeout: float) -> None:
        self.calls: list[GateCall] = []
        self.errors: list[Exception] = []
        self.answered: list[str] = []
        self.remaining: dict[str, tuple[int, float]] = {}
        self.was_interrupted = False
        self.delay = 0.0  # before each call, so that calls under way together overlap
        self.before_write: Callable[[], Any] | None = None  # happens once, after the plan was made
        self.spoil: Callable[[Any], Any] | None = None  # puts another answer in the place of one
        self.mix_up: Callable[[str, Any], Any] | None = None  # the same for writes, by operation
        self.held_back: HeldBack | None = None
        self._answers: dict[str, Any] = {}
        self._old_answers: dict[str, Any] = {}
        self.timeout = timeout
        self._countdown = 0
        self._interruption = Interruption.FAILED
        self._is_dead = False

    def interrupt_call(self, number: int, how: Interruption) -> None:
        """Let the `number`-th call from now end like this, counted from 1."""
        self._countdown, self._interruption, self.was_interrupted = number, how, False

    def clear_interruption(self) -> bool:
        """Interrupt no call any more; whether the chosen one had come."""
        self._countdown = 0
        return self.was_interrupted

    def repeat_answers(self) -> None:
        """Let the next read of each operation have the answer that the first one had."""
        self._old_answers, self._answers = self._answers, {}

    async def call(
        self, operation: str, budget: str, function: Callable[[], Awaitable[T]], *, is_write: bool
    ) -> T:
        """As `Gate`."""
        if self.held_back and self.held_back.waits():
            await asyncio.shield(asyncio.wrap_future(self.held_back.ended))
        with self._recorded(GateCall(operation, budget, is_write)):
            await asyncio.sleep(self.delay)
            if is_write and (event := self._take_event()):
                await invoke(event)
            if operation in self._old_answers:
                return cast(T, self._old_answers.pop(operation))
            try:
                async with asyncio.timeout(self.timeout):
                    return self._keep(operation, await function(), is_write)
            except TimeoutError as error:
                raise Unanswered(f"{operation}: no answer within {self.timeout:g} s") from error

    def call_blocking(
        self, operation: str, budget: str, function: Callable[[], T], *, is_write: bool
    ) -> T:
        """As `Gate`."""
        if self.held_back and self.held_back.waits():
            self.held_back.ended.result()
        with self._recorded(GateCall(operation, budget, is_write)):
            time.sleep(self.delay)
            if is_write and (event := self._take_event()):
                asyncio.run(invoke(event))
            if operation in self._old_answers:
                return cast(T, self._old_answers.pop(operation))
            return self._keep(operation, function(), is_write)

    def report_remaining(self, budget: str, calls: int, seconds: float) -> None:
        """As `Gate`; the last word of each class is in `remaining`."""
        self.remaining[budget] = calls, seconds

    def _take_event(self) -> Callable[[], Any] | None:
        event, self.before_write = self.before_write, None
        return event

    def _keep(self, operation: str, answer: T, is_write: bool) -> T:
        self.answered.append(operation)
        self._answers.setdefault(operation, answer)
        if is_write and self.mix_up:
            answer = cast(T, self.mix_up(operation, answer))
        return cast(T, self.spoil(answer)) if self.spoil else answer

    @contextmanager
    def _recorded(self, call: GateCall) -> Iterator[None]:
        how = self._begin(call)
        try:
            yield
        except Exception as error:
            self.errors.append(error)
            self._end(call.operation, how)  # an error is an answer, too
            raise
        self._end(call.operation, how)

    def _begin(self, call: GateCall) -> Interruption | None:
        """Record the call, and whether it is the chosen one; raise if it is not to be performed."""
        if self._is_dead:
            raise ProcessKilled(call.operation)
        self.calls.append(call)
        self._countdown -= 1
        if self._countdown != 0:
            return None
        self.was_interrupted = True
        if self._interruption is Interruption.FAILED:
            raise CloudError(f"{call.operation}: interrupted by the kit")
        return self._interruption

    def _end(self, operation: str, how: Interruption | None) -> None:
        """Take the chosen call's answer away from the provider."""
        if how is Interruption.KILLED:
            self._is_dead = True
        if how is Interruption.KILLED or self._is_dead:
            raise ProcessKilled(operation)
        if how is Interruption.LOST:
            raise CloudError(f"{operation}: its answer was lost by the kit")


class NthAnswer:
    """Which answer another one is put in the place of: one after another, the `number`-th now."""

    def __init__(self) -> None:
        self.number, self.count = 0, 0

    def is_next(self) -> bool:
        """Take the next one, unless fewer came last time."""
        self.number, came, self.count = self.number + 1, self.count, 0
        return self.number == 1 or came >= self.number - 1

    def first_of_each(self, operations: Sequence[str]) -> Iterator[int]:
        """Take the first answer to each of these operations, in turn."""
        for operation in dict.fromkeys(operations):
            self.number, self.count = operations.index(operation) + 1, 0
            yield self.number

    def _is_it(self) -> bool:
        self.count += 1
        return self.count == self.number


class LackingAnswer(NthAnswer):
    """Puts an answer that lacks what is there in its place."""

    def __init__(self, lacking: Callable[[Any], Any]) -> None:
        super().__init__()
        self._lacking = lacking

    def __call__(self, answer: Any) -> Any:
        if not self._is_it():
            return answer
        if isinstance(answer, tuple):
            return (self._lacking(answer[0]), *answer[1:])
        return self._lacking(answer) if isinstance(answer, dict | list) else answer


class AnothersAnswer(NthAnswer):
    """Puts the answer that another's write of the same operation had in its place.

    Until the first one is taken it learns what these are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._anothers: dict[str, Any] = {}

    def __call__(self, operation: str, answer: Any) -> Any:
        if not self.number:
            self._anothers.setdefault(operation, deepcopy(answer))
        return deepcopy(self._anothers.get(operation, answer)) if self._is_it() else answer


class MixedUpAnswer:
    """Puts an answer in its place in which one record of a list has what is another's.

    That is the value of one field, or all: then the other stands there twice. They take turns. Only
    names, IDs and marks of records with different ones of the `names` are mixed up, each in the
    first answer that has it, and of these one in `share`, unless it `is_thorough`.
    """

    def __init__(
        self, names: Sequence[str], share: int = 1, turn: int = 0, *, is_thorough: bool
    ) -> None:
        self._names, self._share, self._turn = names, share, turn
        self._is_thorough = is_thorough
        self._seen, self._count, self.last = set[tuple[object, ...]](), 0, "none yet"

    def is_next(self) -> bool:
        """Take the next one, unless there was none last time."""
        had, self.last, self._count = self.last, "", 0
        return bool(had)

    def __call__(self, answer: Any) -> Any:
        """A copy that is mixed up, or the answer itself where nothing in it is to be."""
        if isinstance(answer, tuple):
            return (self(answer[0]), *answer[1:])
        self._count += 1
        mixed = deepcopy(answer)
        for place, key, record, other in () if self.last else _mix_ups(mixed):
            if self._takes(place, key, record, other):
                self.last = f"{place}/{key} of answer {self._count}"
                for each in [key] if key else {*record, *other}:
                    record.pop(each, None)
                    record |= {each: deepcopy(other[each])} if each in other else {}
                return mixed
        return answer

    def _takes(self, place: str, key: str, record: Json, other: Json) -> bool:
        own, others = ([name for name in self._names if name in str(it)] for it in (record, other))
        what: tuple[object, ...] = place, key, *record, *own, "for", *others
        if self._is_thorough:
            what = self._count, place, key, str(record), str(other)
        elif own == others or (key and key.lower() not in MARKS):
            return False
        if what in self._seen:
            return False
        self._seen.add(what)
        return self._is_thorough or len(self._seen) % self._share == self._turn


def _mix_ups(part: Any, place: str = "") -> Iterator[tuple[str, str, Json, Json]]:
    """Each two records of a list, with a key of different values in them, or with none for all."""
    if isinstance(part, list):
        for record, other in permutations([it for it in part if isinstance(it, dict)], 2):
            yield place, "", record, other
            yield from _different(place, record, other)
        for item in part:
            yield from _mix_ups(item, place)
    elif isinstance(part, dict):
        for key, item in part.items():
            yield from _mix_ups(item, f"{place}/{key}")


def _different(place: str, record: Json, other: Json) -> Iterator[tuple[str, str, Json, Json]]:
    for key in sorted(record.keys() & other.keys()):
        if record[key] != other[key]:
            yield place, key, record, other
            if isinstance(record[key], dict) and isinstance(other[key], dict):
                yield from _different(f"{place}/{key}", record[key], other[key])


def without_entries(part: Any) -> Any:
    """With lists as they are in a cloud where nothing is."""
    if isinstance(part, dict):
        return {key: without_entries(item) for key, item in part.items()}
    return [] if isinstance(part, list) else part


def hollow(part: Any) -> Any:
    """A success that says nothing."""
    return type(part)()


def absent(part: Any) -> Any:
    """Not there, says the cloud."""
    raise NotFound("404: the kit hides it")


LACKING = (without_entries, hollow, absent)
"""Ways in which one answer may lack what is there."""
