"""What is kept of many, such as machines, which come and go for as long as a process runs."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST_KEPT = 10_000  # of one cluster at a time there are fewer Nodes


class Newest(dict[K, V]):
    """Of more keys than `most` those are forgotten that were set longest ago."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]
