"""How long to wait before another try: exponential, capped, with jitter against herds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first` seconds after one failure, doubling up to `most`; `jitter` is a share of a delay."""

    first: float
    most: float
    jitter: float = 0.2

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` (1 or more) in a row; `chance` is a draw from [0, 1)."""
        exponent = min(max(failures, 1) - 1, 63)
        full: float = min(self.first * 2.0**exponent, self.most)
        return full * (1 - self.jitter * chance)
