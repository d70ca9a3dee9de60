"""The provider, started for a test, and what it called."""

from typing import Self

from ccm.cloud.gate import invoke
from ccm.cloud.interface import ProviderContext
from ccm.cloud.testkit.gate import KitGate
from ccm.model.cloud import Answer
from ccm.model.objects import Node
from ccm.providers.openstack.instances import OpenStackInstances
from ccm.providers.openstack.provider import OpenStackCloud


class Started(OpenStackCloud):
    """The provider with its gate."""

    def __init__(
        self, config: str, path: str = "", cluster: str = "kit", uid: str = "", caller: str = "test"
    ) -> None:
        super().__init__()
        self.gate = KitGate(30.0)
        self._context = ProviderContext(
            self.gate, config.encode(), path, cluster, caller, cluster_uid=uid
        )

    async def start(self) -> Self:
        await self.initialize(self._context)
        return self

    async def describe(self, *nodes: Node) -> dict[str, Answer]:
        assert self.instances
        return {**await invoke(self.instances.describe, nodes)}

    async def describe_one(self, asked: Node) -> Answer:
        return (await self.describe(asked))[asked.name]

    async def confirm_gone(self, asked: Node) -> Answer:
        assert isinstance(self.instances, OpenStackInstances)
        return (await self.instances.confirm_gone([asked]))[asked.name]

    @property
    def operations(self) -> list[str]:
        return [call.operation for call in self.gate.calls]
