"""How often something may happen of each of many: so many times at once, then at a slow rate."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Allowances(Generic[K]):
    """`burst` times at once, and one more every `refill` seconds, for each key.

    Of more keys than `most` those are forgotten that were asked about longest ago.
    """

    def __init__(self, burst: int, refill: float, most: int) -> None:
        self._burst, self._refill, self._most = float(burst), refill, most
        self._left: OrderedDict[K, tuple[float, float]] = OrderedDict()  # and as of when

    def take(self, key: K, now: float) -> float:
        """0 where it may happen now, which is counted; else in how many seconds it may."""
        left, at = self._left.pop(key, (self._burst, now))
        left = min(left + (now - at) / self._refill, self._burst)
        wait = max((1.0 - left) * self._refill, 0.0)
        self._left[key] = (left if wait else left - 1.0), now
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait
