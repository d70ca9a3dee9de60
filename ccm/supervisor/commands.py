"""What people may ask of a running supervisor, over the control socket."""

from collections.abc import Callable
from dataclasses import dataclass

from ccm.model.objects import Json
from ccm.supervisor.children import Children
from ccm.supervisor.deletions import Governor
from ccm.supervisor.explaining import Explainer
from ccm.supervisor.shards import Shards

MOST_WORKERS = 64


@dataclass(frozen=True, slots=True)
class Commands:
    """Answers one request with one JSON object: `ok` or `error` with a sentence, or facts."""

    children: Children
    shards: Shards
    governor: Governor
    explaining: Explainer
    status: Callable[[], Json]
    stop: Callable[[], None]
    reload: Callable[[], str]
    set_verbosity: Callable[[int], None]

    async def answer(self, request: Json) -> Json:
        match request.get("command"):
            case "status":
                return self.status()
            case "stop":
                self.stop()
                return {"ok": "stopping"}
            case "reload":
                return {"ok": self.reload()}
            case "restart":
                return self._restart(str(request.get("worker")))
            case "scale":
                return await self._scale(request.get("count"))
            case "deletions":
                return self.governor.answer(request)
            case "explain":
                return await self.explaining.answer(request)
            case "log-level":
                return self._log_level(request.get("verbosity"))
        return {"error": f"unknown command {request.get('command')!r}"}

    def _restart(self, name: str) -> Json:
        child = self.children.named(name)
        if child is None:
            names = ", ".join(child.name for child in self.children)
            return {"error": f"no worker {name!r}; there are: {names}"}
        return {"ok": self.children.restart(child)}

    async def _scale(self, count: object) -> Json:
        if not isinstance(count, int) or not 1 <= count <= MOST_WORKERS:
            return {"error": f"the number of workers must be from 1 to {MOST_WORKERS}"}
        return {"ok": await self.shards.scale(count)}

    def _log_level(self, verbosity: object) -> Json:
        if not isinstance(verbosity, int):
            return {"error": "the verbosity must be a number"}
        self.set_verbosity(verbosity)
        return {"ok": f"verbosity is {verbosity}"}
