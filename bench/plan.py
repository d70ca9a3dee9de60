"""How large a run is: every number that the command line can change."""

from dataclasses import dataclass

from bench.figures import Row


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of one run; times in seconds."""

    sizes: tuple[int, ...] = (100, 1000, 5000)
    repeats: int = 3
    page: int = 100  # machines in one answer of the cloud
    latency: float = 0.0  # of every call to the cloud
    quota: float = 20.0  # reads a second that the provider declares, which is its default
    writes: float = 1000.0  # writes a second, wide enough not to be what is measured
    beats: float = 120.0  # how long heartbeats are counted
    services: int = 500
    shards: tuple[int, ...] = (1, 2, 4)
    sides: tuple[str, ...] = ()  # of a comparison that are run; all of them when empty
    runs: str = ""  # a file of the runs so far, for a measurement in several pieces
    profiles: str = ""  # the folder for flame graphs of our processes

    @property
    def most(self) -> int:
        return max(self.sizes)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a part found: its table, the budgets it broke, and counts that must be exact."""

    rows: list[Row]
    broken: list[str]
