"""One check: facts are gathered in one function and judged in another, which is pure."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ccm.checks.finding import Finding
from ccm.checks.site import Site

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Check(Generic[Facts]):
    """`look` may take `timeout` seconds and may raise whatever it likes: other checks go on."""

    name: str
    look: Callable[[Site], Awaitable[Facts]]
    judge: Callable[[Facts], Iterable[Finding]]
    timeout: float = 10.0
