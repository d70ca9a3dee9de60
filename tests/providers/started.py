"""A provider of any cloud as tests have it: at work behind the kit's gate, and asked by `check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from ccm.checks.cloud import check_reads
from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding
from ccm.cloud.gate import invoke
from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.errors import RetryAfter
from ccm.model.cloud import Answer, Balancer, Instance, Unknown
from ccm.model.objects import Node
from ccm.model.service import Service
from ccm.settings import Settings
from tests.support.deadlines import timeout

MOST_TRIES = 20


class StartedProvider(CloudProvider):
    """To be named as a parent before the provider's own class; its test's end closes it."""

    started: ClassVar[list[CloudProvider]] = []

    def __init__(self, text: str, path: str, **more: Any) -> None:
        super().__init__()
        self.text, self.gate = text, KitGate(timeout(7.5))
        given = {"cluster_name": "kit", "caller": "test", **more}
        self._context = ProviderContext(self.gate, text.encode(), path, **given)

    async def start(self) -> Self:
        self.started.append(self)
        await self.initialize(self._context)
        return self

    async def describe(self, *nodes: Node) -> Mapping[str, Answer]:
        assert self.instances
        return await invoke(self.instances.describe, nodes)

    async def describe_one(self, asked: Node | str, provider_id: str = "") -> Answer:
        """A Node, or the name of one with its provider ID."""
        asked = node(asked, provider_id) if isinstance(asked, str) else asked
        return (await self.describe(asked))[asked.name]

    async def known(self, asked: Node | str, provider_id: str = "") -> Instance:
        answer = await self.describe_one(asked, provider_id)
        assert isinstance(answer, Instance), answer
        return answer

    async def why(self, asked: Node | str, provider_id: str = "") -> str:
        """Why it is unknown."""
        answer = await self.describe_one(asked, provider_id)
        assert isinstance(answer, Unknown), answer
        return answer.why

    @property
    def operations(self) -> list[str]:
        return [call.operation for call in self.gate.calls]


class ServingProvider(StartedProvider):
    """One whose load balancers take a while."""

    async def ensure(self, service: Service, *nodes: Node) -> Balancer:
        """As the controller does it: it comes back while the cloud is at work."""
        assert self.load_balancers
        for _ in range(MOST_TRIES):
            try:
                return await invoke(self.load_balancers.ensure, service, nodes)
            except RetryAfter:
                continue
        raise AssertionError("it never ends")


async def checked(provider: str, text: str, directory: Path) -> Sequence[Finding]:
    """What `ccm-supervisor check` says of the cloud's reads, with this configuration."""
    file = directory / "cloud.conf"
    file.write_text(text)
    settings = Settings(cloud_provider=provider, cloud_config=str(file), kubeconfig="/nowhere")
    context = CheckContext(settings, {})
    try:
        return [*await check_reads(context)]
    finally:
        await context.close()
