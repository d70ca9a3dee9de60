"""Calling the provider from a duty: by priority, with typed failures whatever the provider does."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ccm.cloud.gate import spending
from ccm.cloud.invoke import invoke
from ccm.decide.budget import Priority
from ccm.errors import CloudError, NoPermit, RetryAfter, Throttled

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE = 1.0  # seconds after which a throttled call asks for its next grant


async def call(priority: Priority, method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """The method's result; raises `CloudError` or `NoPermit`, for throttling `RetryAfter`."""
    try:
        with spending(priority):
            return await invoke(method, *args)
    except Throttled as error:
        raise RetryAfter(str(error), error.seconds or PAUSE) from error
    except (CloudError, NoPermit):
        raise
    except Exception as error:  # around one callback: a provider's bug is one failed call
        log.exception("provider failed", extra={"call": method.__name__})
        raise CloudError(f"the provider failed: {error!r}") from error
