"""Whose the machines of Nodes are, for what leads traffic to them: the cluster's, and one Node's.

A kubelet may write any provider ID into its Node, and register without the taint that keeps work
off it. Nodes with a machine that lacks the marks of `--machine-marks` get no route and no balancer,
and of several Nodes with one machine only the one that fits what the cloud says of it does.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from ccm.cloud.gate import call
from ccm.cloud.interface import MarksMachines
from ccm.decide.budget import MOST_OBJECTS, READ_PAUSE, READS, Allowances, Priority
from ccm.errors import CloudError, NotLeading
from ccm.model.cloud import Answer, Instance, Unknown
from ccm.model.objects import Node
from workers.controller import ControllerContext

log = logging.getLogger(__name__)

RECHECK = 60.0  # seconds after which the cloud is asked again about Nodes that are left out
FOREIGN = "ForeignMachine"  # reason of Events
NOT_YET = "the cloud was not asked yet whether its machine is the cluster's"


class NodeMachines:
    """Asks the cloud about the machines of Nodes where that is needed, and keeps what it says.

    Without required marks and without contested machines no call is made. `on_verdict` is called
    with the names of Nodes about which something is known now that was not before.
    """

    def __init__(
        self, context: ControllerContext, on_verdict: Callable[[Collection[str]], None]
    ) -> None:
        self._context, self._on_verdict = context, on_verdict
        part: object = context.provider.instances
        self._instances = context.provider.instances
        self._marked = part if isinstance(part, MarksMachines) and part.required_marks else None
        self._holders = context.machine_holders()
        self._identities: dict[str, tuple[str, ...]] = {}  # of Nodes with a machine here, by name
        self._verdicts: dict[str, str] = {}  # why not, by name; empty where nothing speaks against
        self._waiting = set[str]()  # names of Nodes that were not asked about
        self._put_off = set[str]()  # those of them that change too often: asked after `RECHECK`
        self._contested = set[str]()
        self._rounds = 0  # in which contested machines were asked about
        self._unsettled = dict[str, int]()  # by name of a contested Node, the round that asks
        self._mark_asks = Allowances[str](READS, READ_PAUSE, MOST_OBJECTS)
        self._asks = Allowances[str](READS, READ_PAUSE, MOST_OBJECTS)
        self._wake, self._asked = asyncio.Event(), asyncio.Event()
        self._error: CloudError | None = None
        self._has_settled = False
        self._doubts = 0  # answers in a row by which no machine at all is the cluster's
        self._recheck_at = 0.0  # of those left out or not found

    def update(self, name: str, node: Node | None) -> set[str]:
        """Take in a Node, or that there is none; the others of its machines, old and new."""
        provider_ids = self._context.provider.provider_ids
        is_here = node is not None and provider_ids.fullmatch(node.provider_id) is not None
        identity = node.cloud_identity if node and is_here else ()
        if self._identities.get(name, ()) != identity:
            self._identities.pop(name, None)
            self._verdicts.pop(name, None)
            self._waiting.discard(name)
            self._put_off.discard(name)
            if identity:
                self._identities[name] = identity
                self._ask_whose(name)
        others = self._holders.update(name, node, keeps_first=self._has_settled)
        if len(self._holders.sharing(name)) > 1:
            self._contested.add(name)  # asked about after `RECHECK` at the latest
            if not self._asks.take(name, time.monotonic()):
                self._unsettled[name] = self._rounds + 1
                self._wake.set()
        return others

    def _ask_whose(self, name: str) -> None:
        """Have the cloud asked soon; for a Node that registers again and again, in a while."""
        if not self._marked:
            return
        if self._mark_asks.take(name, time.monotonic()):
            self._put_off.add(name)
        else:
            self._waiting.add(name)
            self._wake.set()

    def why_not(self, name: str) -> str:
        """Why nothing may lead to this Node's machine; empty when it may."""
        if name in self._waiting or name in self._put_off:
            return NOT_YET
        return self.known_against(name)

    def known_against(self, name: str) -> str:
        """The same, where one that the cloud was not asked about has nothing against it."""
        return self._verdicts.get(name, "") or self._holders.why_not(name)

    def is_duplicate(self, name: str) -> bool:
        """Whether another Node has this one's machine."""
        return bool(self._holders.holder(name))

    async def known(self) -> None:
        """Return once the cloud was asked about every Node that is there now.

        Who comes meanwhile is not waited for. While it fails it raises `CloudError`, unless at
        least half of the Nodes are known from before: the others are left out until then.
        """
        asked = {name: self._identities[name] for name in self._waiting}
        newest = max(self._unsettled.values(), default=0)
        while any(number <= newest for number in self._unsettled.values()) or any(
            self._identities.get(name) == asked[name] for name in asked.keys() & self._waiting
        ):
            unknown = len(asked.keys() & self._waiting)
            if self._error and self._has_settled and 2 * unknown <= len(self._identities):
                return
            if self._error:
                raise CloudError(f"whose the machines are is not known: {self._error}")
            await self._asked.wait()

    async def run(self) -> None:
        """Ask whenever there is something to ask, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RECHECK):
                    await self._wake.wait()
                    # Nodes that come together are asked about together.
                    await asyncio.sleep(self._context.timings.node_debounce)
            except TimeoutError:
                pass
            self._wake.clear()
            await self._context.performer.permission.wait()
            try:
                self._on_verdict(await self._check_marks())
                self._on_verdict(await self._settle())
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

    async def _check_marks(self) -> set[str]:
        """Ask about those that wait; in a while again about those left out or not found."""
        names, now = set(self._waiting), time.monotonic()
        if now >= self._recheck_at:
            self._recheck_at = now + RECHECK
            names |= {name for name in self._identities if self._verdicts.get(name, NOT_YET)}
        nodes = self._nodes(names)
        if not self._marked or not nodes:
            return set()
        asked = {node.name: node.cloud_identity for node in nodes}
        answer: Mapping[str, str] = await call(Priority.NODE_INIT, self._marked.foreign, nodes)
        found = dict(answer)
        if any(found.values()) and all((self._verdicts | found).values()):
            self._doubts += 1  # a wrong answer, or flag, would empty all load balancers
            raise CloudError("no machine of a Node has the cluster's marks (--machine-marks)")
        self._doubts = 0
        new = [node for node in nodes if found.get(node.name) and not self._verdicts.get(node.name)]
        if new:  # one answer may lack the marks of some
            answer = await call(Priority.NODE_INIT, self._marked.foreign, new)
            found |= answer
        news = set[str]()
        for name, identity in asked.items():
            if self._identities.get(name) != identity:
                continue  # it is another one by now
            why = found.get(name, "")  # a machine that is not found is no other cluster's
            is_new = name in self._waiting or name in self._put_off
            if is_new or why != self._verdicts.get(name, ""):
                news.add(name)
                if why:
                    log.warning("node left out", extra={"node": name, "why": why})
            self._waiting.discard(name)
            self._put_off.discard(name)
            if name in found:
                self._verdicts[name] = why
        return news

    async def _settle(self) -> set[str]:
        """Ask about machines that several Nodes name: about each of them, as a kubelet may name a
        machine so that nothing can be asked.
        """
        contested, self._contested = self._contested, set()
        shared = [all_of_it for it in contested if len(all_of_it := self._holders.sharing(it)) > 1]
        nodes = self._nodes(set[str]().union(*shared))
        answers: Mapping[str, Answer] = {}
        self._rounds += 1
        try:
            if nodes and self._instances:
                answers = await call(Priority.NODE_INIT, self._instances.describe, nodes)
        except (CloudError, NotLeading):
            self._contested |= contested
            self._rounds -= 1
            raise
        later = {name: number for name, number in self._unsettled.items() if number > self._rounds}
        self._unsettled = later  # those that changed meanwhile
        if later:
            self._wake.set()
        machines = dict[frozenset[str], Instance]()
        for node in nodes:
            if isinstance(answer := answers.get(node.name), Instance):
                machines[self._holders.keys_of(answer)] = answer
            elif isinstance(answer, Unknown):
                self._contested.add(node.name)  # asked about again after `RECHECK`
        news = set[str]()
        for machine in machines.values():
            claimants = self._holders.claimants(machine)
            news |= self._holders.settle(machine, self._nodes(claimants))
        return news

    def _nodes(self, names: Collection[str]) -> list[Node]:
        store = self._context.store
        found = (store.view(Node, name) for name in sorted(names))
        return [node for node in found if node]
