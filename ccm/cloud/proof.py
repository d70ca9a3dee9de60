"""One cheap read by which a new process proves the cloud's credentials before it takes over.

It goes past the budget and needs no leadership: it is one read, and its process may do nothing yet.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from ccm.cloud.gate import WorkerGate, call
from ccm.cloud.interface import CloudProvider, ProvesCredentials, ProviderContext
from ccm.cloud.registry import load_provider
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Denied, Unauthenticated
from ccm.model.objects import Node

PROOF_TIMEOUT = 20.0  # seconds, for all of it
NO_SUCH_NAME = "ccm-supervisor-check"
NO_SUCH_NODE = Node({"metadata": {"name": NO_SUCH_NAME, "uid": NO_SUCH_NAME}})
"""What no cloud has: asking for it shows whether one may ask."""


class FreeGrants:
    """Grants every call at once: a proof or a check makes few."""

    async def take(self, budget: str, priority: Priority) -> float:
        return asyncio.get_running_loop().time()

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        """Nothing to slow down."""

    def remaining(self, budget: str, calls: int, seconds: float) -> None:
        """Few are enough."""


class _ProvingGate(WorkerGate):
    """Keeps what the cloud said: a provider may make an answer of it that only says `Unknown`."""

    def __init__(self, timeout: float) -> None:
        super().__init__(FreeGrants(), timeout, check=lambda: None)
        self.answered, self.errors = 0, list[CloudError]()

    @contextmanager
    def _counted(
        self, operation: str, budget: str, granted: float, is_write: bool
    ) -> Iterator[None]:
        try:
            with super()._counted(operation, budget, granted, is_write):
                yield
        except CloudError as error:
            self.errors.append(error)
            raise
        self.answered += 1


async def prove_credentials(name: str, context: ProviderContext) -> CloudError | None:
    """Why the provider of this name cannot read the cloud; None when it can.

    It is `Denied` if the cloud refuses the credentials; any other error may pass. Credentials in
    a Secret are not proved: the new process has no token of the API server yet.
    """
    gate, needs_secret = _ProvingGate(PROOF_TIMEOUT), False
    provider = load_provider(name)

    async def read_secret(namespace: str, name: str) -> Mapping[str, str]:
        nonlocal needs_secret
        needs_secret = True
        raise CloudError(f"Secret {namespace}/{name} is not read yet")

    try:
        async with asyncio.timeout(PROOF_TIMEOUT):
            await provider.initialize(replace(context, gate=gate, read_secret=read_secret))
            await _read_little(provider)
    except TimeoutError:
        gate.errors.append(CloudError(f"no answer within {PROOF_TIMEOUT:g} s"))
    except CloudError as error:
        gate.errors.append(error)
    finally:
        await provider.close()
    denied = [error for error in gate.errors if isinstance(error, Denied)]
    if needs_secret or not (denied or (gate.errors and not gate.answered)):
        return None
    first = (denied or gate.errors)[-1]  # which the provider raised, if it did
    source = first.source if isinstance(first, Unauthenticated) else ""
    return Denied(f"{first} ({source})") if source else first


async def _read_little(provider: CloudProvider) -> None:
    if isinstance(provider, ProvesCredentials):
        await call(Priority.REFRESH, provider.prove_credentials)
    elif provider.instances:
        await call(Priority.REFRESH, provider.instances.describe, [NO_SUCH_NODE])
