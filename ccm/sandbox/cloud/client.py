"""A client of the admin surface, for the sandbox, the tests and the command line."""

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast
from urllib.parse import quote

import aiohttp
import orjson

from ccm.errors import CloudError, Refused
from ccm.sandbox.cloud.codec import decode
from ccm.sandbox.cloud.faults import CloudFault
from ccm.sandbox.cloud.records import Machine, Volume
from ccm.sandbox.cloud.simulation import CallRate

Json = dict[str, Any]


class CloudAdmin:
    """`async with CloudAdmin(url) as admin: await admin.stop("node-1")`.

    A machine is named by its id or by a name that only one live machine has. Raises `Refused` with
    the cloud's own sentence when it says no, and `CloudError` when it cannot be reached.
    """

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def machines(self) -> list[Machine]:
        """Every machine that is still visible, terminated ones included."""
        return [decode(Machine, item) for item in await self._ask("GET", "machines")]

    async def add(self, machines: Sequence[Machine]) -> list[Machine]:
        added = await self._ask("POST", "machines", list(machines))
        return [decode(Machine, item) for item in added]

    async def start(self, ref: str) -> Machine:
        return await self._act(ref, "start")

    async def stop(self, ref: str) -> Machine:
        return await self._act(ref, "stop")

    async def terminate(self, ref: str) -> Machine:
        """End a machine for good; it stays visible as `terminated` for a while."""
        return await self._act(ref, "terminate")

    async def vanish(self, ref: str) -> None:
        await self._ask("DELETE", _machine(ref))

    async def change(self, ref: str, changes: Mapping[str, Any]) -> Machine:
        """Change `type`, `zone`, `region`, `addresses` ([{type, address}]) or `labels`."""
        return decode(Machine, await self._ask("PATCH", _machine(ref), dict(changes)))

    async def add_volume(self, volume: Volume) -> Volume:
        return decode(Volume, await self._ask("POST", "volumes", volume))

    async def state(self) -> Json:
        """Everything the cloud holds; a seed file has the same form."""
        return cast(Json, await self._ask("GET", "state"))

    async def replace_state(self, state: Json) -> None:
        """Make the cloud hold this and nothing else; what was under way there is forgotten."""
        await self._ask("PUT", "state", state)

    async def set_token(self, token: str) -> None:
        """From now on take this bearer token, and the one before it no more."""
        await self._ask("PUT", "token", {"token": token})

    async def counters(self) -> Json:
        """Totals (`total`, `reads`, `writes`, `throttled`, `unanswered`) and `rows` by call."""
        return cast(Json, await self._ask("GET", "counters"))

    async def reset_counters(self) -> None:
        """Start counting again and empty the log of requests."""
        await self._ask("DELETE", "counters")

    async def requests(self) -> list[Json]:
        """The latest requests with their wall and monotonic times, oldest first."""
        return list(await self._ask("GET", "requests"))

    async def faults(self) -> list[CloudFault]:
        return [decode(CloudFault, item) for item in await self._ask("GET", "faults")]

    async def set_fault(self, fault: CloudFault) -> CloudFault:
        return decode(CloudFault, await self._ask("POST", "faults", fault))

    async def clear_faults(self, fault_id: str | None = None) -> None:
        await self._ask("DELETE", f"faults/{quote(fault_id, safe='')}" if fault_id else "faults")

    async def set_limits(self, **limits: float | CallRate | None) -> Json:
        """Change rates (`read`, `write`; None is no limit) and fields of `CloudParameters`.

        The answer has all of them as they are then.
        """
        return cast(Json, await self._ask("PATCH", "limits", limits))

    async def _act(self, ref: str, action: str) -> Machine:
        return decode(Machine, await self._ask("POST", f"{_machine(ref)}/{action}"))

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        url, data = f"{self._url}/admin/{path}", None if body is None else orjson.dumps(body)
        try:
            async with self._session.request(method, url, data=data) as response:
                content = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise CloudError(f"no simulated cloud at {self._url}: {error}") from error
        try:
            answer = orjson.loads(content) if content else None
        except orjson.JSONDecodeError as error:
            raise CloudError(f"what answers is not a simulated cloud: {error}") from error
        if status < 400:
            return answer
        if status < 500 and isinstance(answer, dict):
            raise Refused(str(answer.get("error", {}).get("message", answer)))
        raise CloudError(f"the simulated cloud answered {status}")


def _machine(ref: str) -> str:
    return f"machines/{quote(ref, safe='')}"
