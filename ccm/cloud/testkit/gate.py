"""The kit's gate: grants everything, notes every call, and can cut the provider off anywhere."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ccm.errors import CloudError

T = TypeVar("T")


class Cut(BaseException):
    """The provider's process ends here, as by SIGKILL: nothing after this line runs any more."""


class Break(StrEnum):
    """What happens to one chosen call."""

    KILLED = "killed after"
    """The call is performed, then the provider's process ends."""
    FAILED = "failed"
    """The call is not performed and raises `CloudError`."""
    LOST = "answer lost"
    """The call is performed and raises `CloudError`."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the provider named it to its gate."""

    operation: str
    budget: str


class KitGate:
    """Every call goes at once, within `timeout`; `calls` and `errors` are in the order made."""

    def __init__(self, timeout: float) -> None:
        self.calls: list[Call] = []
        self.errors: list[Exception] = []
        self.was_broken = False
        self.delay = 0.0  # before each call, so that calls under way together overlap
        self._timeout = timeout
        self._countdown = 0
        self._break = Break.FAILED
        self._is_dead = False

    def break_call(self, number: int, how: Break) -> None:
        """Let the `number`-th call from now end like this, counted from 1."""
        self._countdown, self._break, self.was_broken = number, how, False

    def mend(self) -> bool:
        """Break no call any more; whether the chosen one had come."""
        self._countdown = 0
        return self.was_broken

    async def call(self, operation: str, budget: str, function: Callable[[], Awaitable[T]]) -> T:
        how = self._begin(operation, budget)
        try:
            await asyncio.sleep(self.delay)
            async with asyncio.timeout(self._timeout):
                result = await function()
        except TimeoutError as late:
            error = CloudError(f"{operation}: no answer within {self._timeout:g} s")
            self.errors.append(error)
            raise error from late
        except Exception as error:
            self.errors.append(error)
            self._end(operation, how)  # an error is an answer, too
            raise
        self._end(operation, how)
        return result

    def call_blocking(self, operation: str, budget: str, function: Callable[[], T]) -> T:
        how = self._begin(operation, budget)
        try:
            time.sleep(self.delay)
            result = function()
        except Exception as error:
            self.errors.append(error)
            self._end(operation, how)  # an error is an answer, too
            raise
        self._end(operation, how)
        return result

    def _begin(self, operation: str, budget: str) -> Break | None:
        """Note the call, and whether it is the chosen one; raise if it is not to be performed."""
        if self._is_dead:
            raise Cut(operation)
        self.calls.append(Call(operation, budget))
        self._countdown -= 1
        if self._countdown != 0:
            return None
        self.was_broken = True
        if self._break is Break.FAILED:
            raise CloudError(f"{operation}: broken by the kit")
        return self._break

    def _end(self, operation: str, how: Break | None) -> None:
        """Take the chosen call's answer away from the provider."""
        if how is Break.KILLED:
            self._is_dead = True
        if how is Break.KILLED or self._is_dead:
            raise Cut(operation)
        if how is Break.LOST:
            raise CloudError(f"{operation}: its answer was lost by the kit")
