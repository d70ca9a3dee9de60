"""Calling a provider's method whether its author wrote it `async` or plain."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


async def invoke(method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """The method's result; a plain method runs in a thread, so that the loop never blocks."""
    if inspect.iscoroutinefunction(method):
        return cast(T, await method(*args))
    return cast(T, await asyncio.to_thread(method, *args))
