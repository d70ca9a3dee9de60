"""The moods of the simulated cloud: it fails, it dawdles, and it is well again."""

from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind


class Weather:
    """Every change lasts until `calm`."""

    def __init__(self, cloud: CloudAdmin) -> None:
        self._cloud = cloud

    async def fail(self, kind: str, operation: str, is_performed: bool) -> None:
        """Calls fail; performed: they do their work all the same, and only the answer is lost."""
        await self._cloud.set_fault(
            CloudFault(
                CloudFaultKind(kind), operation, performed=is_performed, delay=0.2, retry_after=0.3
            )
        )

    async def slow(self, seconds: float) -> None:
        """Every call takes longer, and balancers take their time to become and to go."""
        await self._cloud.set_parameters(latency=seconds, provisioning=seconds, deletion=seconds)

    async def calm(self) -> None:
        await self._cloud.clear_faults()
        await self.slow(0.0)
