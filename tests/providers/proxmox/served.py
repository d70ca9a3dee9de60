"""fakepve, a stand-in for Proxmox VE that others wrote, served in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from aiohttp import web
from fakepve import FakePve
from fakepve.certs import make_cert

from tests.support.deadlines import timeout

USER, TOKEN_NAME, SECRET = "ccm@pve", "k8s", "0f0e0d0c-0b0a-4908-8706-050403020100"
TOKEN = f"{USER}!{TOKEN_NAME}"
ALL_RIGHTS = ("VM.Audit", "VM.GuestAgent.Audit", "Sys.Audit")
LIST = "/cluster/resources"


class Served(FakePve):  # type: ignore[misc]
    """One Proxmox cluster. `fault` is how every call fails, `on_…` what answers."""

    def __init__(self, folder: Path, name: str = "pve") -> None:
        super().__init__(host="127.0.0.1", port=0)
        self.acl: dict[str, list[tuple[str, set[str]]]] | None
        folder.mkdir(exist_ok=True)
        self.certificate, self._key, _ = make_cert(str(folder), name)
        self.fault: dict[str, Any] = {}
        self.on_list: Any = None
        self.on_permissions: Any = None
        self.reset()

    def reset(self) -> None:
        """As after the start: one host, no machines, a token with all rights that are needed."""
        self.fault, self.on_list, self.on_permissions = {}, None, None
        self.vms.clear()
        self.cts.clear()
        self.nodes.clear()
        self.add_node("pve1")
        self.failures.clear()
        self.requests.clear()
        self.quorate, self.acl = True, None
        self.network["node_latency"].clear()
        self.apitokens = {TOKEN: SECRET}
        self.grant(TOKEN, "/", *ALL_RIGHTS)

    def add(self, vmid: int, name: str, uuid: str = "", **more: Any) -> Any:
        """A machine that runs, if nothing else is said."""
        config: dict[str, Any] = {"cores": 4, "memory": 8192} | dict(more.pop("config", {}))
        if uuid:
            config.setdefault("smbios1", f"uuid={uuid}")
        return self.add_vm(vmid, name, **{"status": "running", **more}, config=config)

    def remove(self, vmid: int) -> None:
        self.vms[:] = [one for one in self.vms if one.vmid != vmid]

    def paths(self, part: str = "") -> list[str]:
        """Which paths were asked for, those that have this part."""
        return [path for _, path, _ in self.requests if part in path]

    def section(self, region: str = "one", **more: str) -> str:
        """Its entry below `clusters:`."""
        keys = {
            "region": region,
            "url": self.url,
            "ca_file": self.certificate,
            "token_id": TOKEN,
            "token_secret": SECRET,
        } | more
        lines = [f"{key}: {value!r}" for key, value in keys.items() if value]
        return "\n".join(f"{'- ' if at == 0 else '  '}{line}" for at, line in enumerate(lines))

    async def _answer(self, request: Any, handler: Any, generic: Any, path_node: Any) -> Any:
        if self.fault:
            if delay := self.fault.get("delay"):
                await asyncio.sleep(delay)
            return web.Response(
                status=self.fault.get("status", 200),
                text=self.fault.get("text", ""),
                headers=self.fault.get("headers"),
            )
        if self.on_list and request.path.endswith(LIST):
            return await self.on_list(request)
        return await super()._answer(request, handler, generic, path_node)

    async def _permissions(self, v: Any, user: Any) -> Any:
        return await (self.on_permissions or super()._permissions)(v, user)

    async def _end(self) -> None:
        """Guests' agents that hang are not waited for."""
        for task in asyncio.all_tasks() - {cast(Any, asyncio.current_task())}:
            task.cancel()
        await self.stop()

    @contextmanager
    def running(self) -> Iterator["Served"]:
        """Serve until the end of the block."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        def run(call: Any) -> None:
            asyncio.run_coroutine_threadsafe(call, loop).result(timeout())

        try:
            run(self.start(self.certificate, self._key))
            yield self
        finally:
            run(self._end())
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout())
            loop.close()


def config_of(*sections: str, features: Mapping[str, str] | None = None) -> str:
    """A whole file, with `features.network` as given."""
    lines = [f"    {key}: {value}" for key, value in (features or {}).items()]
    head = ["features:", "  network:", *lines] if lines else []
    return "\n".join([*head, "clusters:", *sections, ""])
