"""The provider, started for a test."""

from ccm.model.cloud import Answer
from ccm.model.objects import Node
from ccm.providers.openstack.instances import OpenStackInstances
from ccm.providers.openstack.provider import OpenStackCloud
from tests.providers.started import StartedProvider


class Started(StartedProvider, OpenStackCloud):
    """The provider with its gate."""

    def __init__(
        self, config: str, path: str = "", cluster: str = "kit", uid: str = "", caller: str = "test"
    ) -> None:
        super().__init__(config, path, cluster_name=cluster, cluster_uid=uid, caller=caller)

    async def confirm_gone(self, asked: Node) -> Answer:
        assert isinstance(self.instances, OpenStackInstances)
        return (await self.instances.confirm_gone([asked]))[asked.name]
