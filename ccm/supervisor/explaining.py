"""Asking the workers why an object is as it is, and putting their answers together."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from ccm.bus.frames import Explain, Explained, Message
from ccm.model.objects import Json
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.deletions import Governor
from ccm.supervisor.delivery import Owns

PATIENCE = 2.0  # seconds for a worker's answer

DUTIES = {
    "node": ("Node", ("node", "route")),
    "service": ("Service", ("service",)),
    "pv": ("PersistentVolume", ("volume_label",)),
}
"""What people may ask about: the kind, and the duties that know something of it."""


class Division(Protocol):
    """Who owns what."""

    def owns(self, child: Child) -> Owns: ...


class Explainer:
    """One question to each worker that looks after the object; the answers in one."""

    def __init__(
        self,
        children: Children,
        division: Division,
        governor: Governor,
        send: Callable[[str, Message], bool],
    ) -> None:
        self._children, self._division, self._governor = children, division, governor
        self._send = send
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}

    def on_message(self, message: Explained) -> None:
        """A worker's answer; one that came too late is dropped."""
        waiting = self._asked.get(message.number)
        if waiting and not waiting.done():
            waiting.set_result(message.status)

    async def answer(self, request: Json) -> Json:
        """The control command `explain`: `kind` is one of `DUTIES`, `name` its key."""
        kind, name = str(request.get("kind")), str(request.get("name") or "")
        if kind not in DUTIES or not name:
            return {"error": f"explain {kind!r} {name!r}: name one of {', '.join(DUTIES)}"}
        asked = [self._ask(child, name) for child in self._who_knows(*DUTIES[kind], name)]
        answers = await asyncio.gather(*asked)
        return {"kind": kind, "name": name, "workers": answers, **self._of_node(kind, name)}

    def _who_knows(self, kind: str, controllers: tuple[str, ...], name: str) -> Iterator[Child]:
        for child in self._children:
            if child.controller in controllers and self._division.owns(child)(kind, name):
                yield child

    async def _ask(self, child: Child, key: str) -> Json:
        known: Json = {"worker": child.name, "state": child.life.state}
        quarantined = self._children.suspects.quarantined(child.controller)
        if key in quarantined:
            known["quarantined"] = "its reconcile ended the worker twice; tried again alone, later"
        if child.current is None:
            return known
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send(child.current.ident, Explain(number, key))
        try:
            known |= await asyncio.wait_for(answer, PATIENCE)
        except TimeoutError:
            known["decided"] = f"the worker did not answer within {PATIENCE:g} s"
        finally:
            del self._asked[number]
        return known

    def _of_node(self, kind: str, name: str) -> Json:
        """What the supervisor itself thinks of deleting a Node."""
        verdict = self._governor.verdict(name) if kind == "node" else None
        return {"deletion": verdict} if verdict else {}
