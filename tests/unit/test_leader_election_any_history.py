"""Two replicas that compete: whatever happens, they never lead at once."""

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.virtual_time import VirtualLoop

from .lease_world import CONFIG, ApiServer, Fate, Replica, Request

seconds = st.sampled_from([0.0, 0.01, 0.5, 2.0, 4.9, 5.1, 9.9, 10.1, 14.9, 15.1]) | st.floats(0, 20)
requests = st.builds(Request, st.sampled_from(Fate), there=seconds, back=seconds)
scripts = st.lists(st.just(Request()) | requests, max_size=25)
clocks = st.tuples(st.floats(-1e5, 1e5), st.floats(0.99, 1.01))
DEEDS = ("release", "kill", "hurt", "hurt and freeze", "hurt and slow down", "fix")
deeds = st.lists(
    st.tuples(
        seconds,
        st.sampled_from([f"{deed} {side}" for deed in DEEDS for side in "ab"] + ["annotate"]),
    ),
    max_size=6,
)
OFFERING = replace(CONFIG, offer_after=3.0)


class Duel:
    """Two replicas, each started again under another name when it ended."""

    def __init__(self, scripts: list[list[Request]], clocks: list[tuple[float, float]]) -> None:
        self.server, self.overlaps = ApiServer(), list[str]()
        self._scripts = [iter(script) for script in scripts]
        self._clocks, self._starts = clocks, 0
        self._all: list[Replica] = []
        self.now = [self._start(0), self._start(1)]

    def _start(self, side: int) -> Replica:
        self._starts += 1
        offset, rate = self._clocks[side]
        script = self._scripts[side]
        name = f"{side}-{self._starts}"
        replica = Replica(self.server, name, script, timing=OFFERING, offset=offset, rate=rate)
        replica.overlaps = self.overlaps
        for other in self._all:
            other.rivals.append(replica)
            replica.rivals.append(other)
        self._all.append(replica)
        replica.start()
        return replica

    async def play(self, deeds: list[tuple[float, str]]) -> None:
        for wait, deed in deeds:
            await self._let_pass(wait)
            if deed == "annotate":
                self.server.annotate()
                continue
            await self._do(deed[:-2], self.now["ab".index(deed[-1])])
        await self._let_pass(60.0)

    async def _do(self, deed: str, replica: Replica) -> None:
        match deed:
            case "release":
                await replica.release()
            case "kill":
                await replica.kill()
            case "fix":
                replica.fix()
            case _:
                replica.hurt(fencing={"hurt": 0.01, "hurt and slow down": 2.0}.get(deed))

    async def _let_pass(self, wait: float) -> None:
        end = asyncio.get_running_loop().time() + wait
        while (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, 0.5))
            self.now = [
                self._start(side) if replica.has_ended else replica
                for side, replica in enumerate(self.now)
            ]


@examples(150)
@given(st.lists(scripts, min_size=2, max_size=2), st.lists(clocks, min_size=2, max_size=2), deeds)
def test_two_replicas_never_have_a_valid_permit_at_the_same_instant(
    scripts: list[list[Request]], clocks: list[tuple[float, float]], deeds: list[tuple[float, str]]
) -> None:
    async def story() -> None:
        duel = Duel(scripts, clocks)
        await duel.play(deeds)
        assert duel.overlaps == []

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
