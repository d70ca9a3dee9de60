"""A real API server's Nodes, as a test of a whole product beside a cloud follows them."""

import asyncio
from collections.abc import Callable

from click.testing import CliRunner

from ccm.cli.main import main
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Node
from ccm.sandbox.kubelets import ready_condition
from tests.support.environment import NODES
from tests.support.running import Supervisor, until


class RealNodes:
    """Those of one cluster; a cloud's tests add what there is on its side."""

    def __init__(self, api: Kube) -> None:
        self.api = api

    async def nodes(self) -> dict[str, Node]:
        return {one["metadata"]["name"]: Node(one) for one in (await self.api.get(NODES))["items"]}

    async def are_initialized(self) -> bool:
        nodes = (await self.nodes()).values()
        return all(one.provider_id and not one.is_uninitialized for one in nodes)

    async def stop_kubelets(self, *names: str) -> None:
        body = {"status": {"conditions": [ready_condition(False)]}}
        for name in names:
            await self.api.patch(f"{NODES}/{name}/status", MERGE_PATCH, body)

    async def until_node(self, name: str, is_so: Callable[[Node], object]) -> None:
        async def seen() -> bool:
            node = (await self.nodes()).get(name)
            return bool(node and is_so(node))

        await until(f"node {name} is as wanted", seen)

    async def until_gone(self, name: str) -> None:
        async def seen() -> bool:
            return name not in await self.nodes()

        await until(f"node {name} is gone", seen)

    async def until_reported(self, supervisor: Supervisor, name: str, words: str) -> None:
        """Until `explain` says this of a Node."""

        async def seen() -> bool:
            asked = ["explain", f"--runtime-dir={supervisor.runtime}", "node", name]
            return words in (await asyncio.to_thread(CliRunner().invoke, main, asked)).output

        await until(f"{words!r} is told", seen)
