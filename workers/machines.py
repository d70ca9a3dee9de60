"""Whose the machines of Nodes are, for what leads traffic to them: the cluster's, and one Node's.

A kubelet may write any provider ID into its Node, and register without the taint that keeps work
off it. Nodes with a machine that lacks the marks of `--machine-marks` get no route and no balancer,
and of several Nodes with one machine only the one that fits what the cloud says of it does.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from ccm.cloud.gate import call
from ccm.cloud.interface import NOT_LOOKED, MarksMachines, look_up_of
from ccm.decide.budget import MOST_OBJECTS, READ_PAUSE, READS, Allowances, Priority
from ccm.errors import CloudError, NotLeading
from ccm.model.cloud import Answer, Instance
from ccm.model.objects import Node
from workers.controller import ControllerContext

log = logging.getLogger(__name__)

RECHECK = 60.0
"""Seconds after which the cloud is asked again about Nodes that are left out, were not found, or
share a machine."""
ROUNDS, ROUND_PAUSE = 10, 2.0
"""So many rounds about Nodes that come at once, then one in so many seconds: kubelets register
under names without end."""
FOREIGN = "ForeignMachine"  # reason of Events
NOT_YET = "the cloud was not asked yet whether its machine is the cluster's"
UNASKED = NOT_YET, NOT_LOOKED


class NodeMachines:
    """Asks the cloud about the machines of Nodes where that is needed, and keeps what it says.

    It asks in rounds: about Nodes that changed, and once in a while about all that are left out,
    were not found, or share a machine. Without required marks and without shared machines no call
    is made. `on_verdict` is called with the names of Nodes about which something is known now that
    was not before.
    """

    def __init__(
        self, context: ControllerContext, on_verdict: Callable[[Collection[str]], None]
    ) -> None:
        self._context, self._on_verdict = context, on_verdict
        instances = context.provider.instances
        self._look_up = look_up_of(instances) if instances else None
        part: object = instances
        self._marked = part if isinstance(part, MarksMachines) and part.required_marks else None
        self._holders = context.machine_holders()
        self._identities: dict[str, tuple[str, ...]] = {}  # of Nodes with a machine here, by name
        self._verdicts: dict[str, str] = {}  # why not, by name; empty where nothing speaks against
        self._unlooked = set[str]()  # names of Nodes about which the next round asks again
        self._awaited: dict[str, int] = {}  # by name, the round that asks about it
        self._round = 0  # the last that began
        self._asks = Allowances[str](READS, READ_PAUSE, MOST_OBJECTS)
        self._rounds = Allowances[str](ROUNDS, ROUND_PAUSE, most=1)
        self._is_resting = False  # until the next round about Nodes that come without end
        self._wake, self._asked = asyncio.Event(), asyncio.Event()
        self._error: CloudError | None = None
        self._has_settled = False
        self._doubts = 0  # answers in a row by which no machine at all is the cluster's
        self._recheck_at = 0.0

    def update(self, name: str, node: Node | None) -> set[str]:
        """Take in a Node, or that there is none; the others of its machines, old and new.

        One that changes again and again is asked about after `RECHECK`, and not waited for.
        """
        provider_ids = self._context.provider.provider_ids
        is_here = node is not None and provider_ids.fullmatch(node.provider_id) is not None
        identity = node.cloud_identity if node and is_here else ()
        is_new = self._identities.get(name, ()) != identity
        if is_new:
            self._identities.pop(name, None)
            self._verdicts.pop(name, None)
            self._awaited.pop(name, None)
            self._unlooked.discard(name)
            if identity:
                self._identities[name] = identity
            if identity and self._marked:
                self._verdicts[name] = NOT_YET
        others = self._holders.update(name, node, keeps_first=self._has_settled)
        is_asked = (is_new and name in self._verdicts) or self._holders.is_shared(name)
        if is_asked and not self._asks.take(name, time.monotonic()):
            self._awaited[name] = self._round + 1
            self._wake.set()
        return others

    def why_not(self, name: str) -> str:
        """Why nothing may lead to this Node's machine; empty when it may."""
        return self._verdicts.get(name, "") or self._holders.why_not(name)

    def known_against(self, name: str) -> str:
        """The same, where one that the cloud was not asked about has nothing against it."""
        verdict = self._verdicts.get(name, "")
        return (verdict if verdict not in UNASKED else "") or self._holders.why_not(name)

    def is_duplicate(self, name: str) -> bool:
        """Whether another Node has this one's machine."""
        return bool(self._holders.holder(name))

    async def known(self, name: str = "") -> None:
        """Return once the cloud was asked about every Node that is there now.

        Who comes or changes meanwhile is not waited for, nor, while Nodes come without end, who is
        in a later round than `name`. While it fails it raises `CloudError`, unless at least half of
        the Nodes are known from before: the others are left out until then.
        """
        newest = self._newest_for(name)
        while awaited := [name for name, number in self._awaited.items() if number <= newest]:
            unknown = sum(self._verdicts.get(name) == NOT_YET for name in awaited)
            if self._error and self._has_settled and 2 * unknown <= len(self._identities):
                return
            if self._error:
                raise CloudError(f"whose the machines are is not known: {self._error}")
            await self._asked.wait()
            newest = min(newest, self._newest_for(name))

    def _newest_for(self, name: str) -> int:
        """The round until which who asks about `name` waits."""
        if self._is_resting and self._has_settled:
            return self._awaited.get(name, self._round)
        return max(self._awaited.values(), default=0)

    async def run(self) -> None:
        """Ask whenever there is something to ask, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK):
                    await self._wake.wait()
                    await self._rest()
            self._wake.clear()
            self._is_resting = False
            await self._context.performer.permission.wait()
            try:
                await self._ask()
                self._error, self._has_settled = None, True
            except NotLeading:
                self._wake.set()
            except CloudError as error:
                log.warning("machines of nodes not checked", extra={"why": str(error)})
                self._error = error
                retry = self._context.timings.throttled_refresh_retry
                await asyncio.sleep(RECHECK if self._doubts > 1 else retry)
                self._wake.set()
            finally:
                self._asked.set()
                self._asked.clear()

    async def _rest(self) -> None:
        """Nodes that come together are asked about together, and those without end seldom."""
        await asyncio.sleep(self._context.timings.node_debounce)
        while pause := self._rounds.take("", time.monotonic()):
            self._is_resting = True
            self._asked.set()
            self._asked.clear()
            await asyncio.sleep(pause)

    async def _ask(self) -> None:
        """One round; who changes meanwhile is asked about in the next one."""
        names, now = {*self._awaited}, time.monotonic()
        names |= self._unlooked
        if now >= self._recheck_at:
            self._recheck_at = now + RECHECK
            names |= self._identities.keys()
        self._round += 1
        self._on_verdict(await self._check_marks(names))
        self._on_verdict(await self._settle(names))
        later = {name: number for name, number in self._awaited.items() if number > self._round}
        self._awaited = later

    async def _check_marks(self, names: Collection[str]) -> set[str]:
        """Ask about those of these Nodes that are left out, were not found, or not asked about."""
        names = [name for name in names if self._marked and self._verdicts.get(name, NOT_YET)]
        nodes = self._nodes(names)
        if not nodes or not self._marked:
            return set()
        asked = {node.name: node.cloud_identity for node in nodes}
        known = {name: why for name, why in self._verdicts.items() if why not in UNASKED}
        answer: Mapping[str, str] = await call(Priority.NODE_INIT, self._marked.foreign, nodes)
        found = dict(answer)
        if any(found.values()) and all((known | found).values()):
            self._doubts += 1  # a wrong answer, or flag, would empty all load balancers
            raise CloudError("no machine of a Node has the cluster's marks (--machine-marks)")
        self._doubts = 0
        new = [node for node in nodes if found.get(node.name) and not known.get(node.name)]
        if new:  # one answer may lack the marks of some
            answer = await call(Priority.NODE_INIT, self._marked.foreign, new)
            found |= answer
        changed = (name for name, it in asked.items() if self._take(name, it, found.get(name)))
        return {*changed}

    def _take(self, name: str, identity: tuple[str, ...], found: str | None) -> bool:
        """Keep why a Node is left out, if it is; whether that is new.

        A machine that is not found (None) is no other cluster's. Who was asked about before stays
        what it was until the cloud was looked at again.
        """
        if self._identities.get(name) != identity:
            return False  # it is another one by now
        before = self._verdicts.pop(name, "")
        self._unlooked.discard(name)
        if found == NOT_LOOKED:
            self._unlooked.add(name)
            found = found if before == NOT_YET else before or None
        why = found if found is not None else before if before != NOT_YET else ""
        if why not in ("", before, NOT_LOOKED):
            log.warning("node left out", extra={"node": name, "why": why})
        if why or found is not None:
            self._verdicts[name] = why
        return why != before

    async def _settle(self, names: Collection[str]) -> set[str]:
        """Ask about machines that several Nodes name, these among them: about each of them, as a
        kubelet may name a machine so that nothing can be asked.
        """
        nodes = self._nodes(self._holders.sharing(names))
        if not nodes or not self._look_up:
            return set()
        answers: Mapping[str, Answer] = await call(Priority.NODE_INIT, self._look_up, nodes)
        found = (answers.get(node.name) for node in nodes)
        machines = {self._holders.keys_of(it): it for it in found if isinstance(it, Instance)}
        news = set[str]()
        for machine in machines.values():
            claimants = self._nodes(self._holders.claimants(machine))
            news |= self._holders.settle(machine, claimants)
        return news

    def _nodes(self, names: Collection[str]) -> list[Node]:
        store = self._context.store
        found = (store.view(Node, name) for name in sorted(names))
        return [node for node in found if node]
