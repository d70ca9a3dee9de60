"""The provider, started for a few cheap reads that workers make as well; nothing is written."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud.dry_run import ReadingGate
from ccm.cloud.gate import WorkerGate, invoke
from ccm.cloud.interface import CloudProvider, ProviderContext
from ccm.cloud.registry import load_provider, read_config
from ccm.decide.budget import Priority
from ccm.errors import CloudError, ConfigurationFault, ConfigurationFaults
from ccm.model.cloud import Answer
from ccm.model.node import Node
from ccm.model.service import Service
from ccm.model.volume import PersistentVolume
from ccm.settings import Settings
from workers.main import require_cluster_id

log = logging.getLogger(__name__)

CALLER = "check"
CALL_TIMEOUT = 8.0  # seconds, unless --cloud-call-timeout is shorter
UNHEARD_OF = "ccm-supervisor-check"
"""The name of what no cloud has: asking for it shows whether one may ask."""

NOBODY = Node({"metadata": {"name": UNHEARD_OF, "uid": UNHEARD_OF}})
NOTHING = Service(
    {
        "metadata": {"name": UNHEARD_OF, "namespace": "default", "uid": UNHEARD_OF},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    }
)


class Counted:
    """Grants every call, and counts them by class of the budget: a check makes few."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()

    async def take(self, budget: str, priority: Priority) -> float:
        self.spent[budget] += 1
        return asyncio.get_running_loop().time()

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        return


@dataclass(frozen=True, slots=True)
class Started:
    """A provider that answers, or what is wrong with it."""

    provider: CloudProvider | None
    purse: Counted
    faults: tuple[ConfigurationFault, ...] = ()
    bug: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """One question to the cloud, what came of it, and what it cost by class of the budget."""

    part: str
    question: str
    spent: Counter[str] = field(default_factory=Counter)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    error: CloudError | None = None


async def started(settings: Settings) -> Started:
    """The provider, initialised as in a worker."""
    purse = Counted()
    timeout = min(settings.cloud_call_timeout, CALL_TIMEOUT)
    gate = ReadingGate(WorkerGate(purse, timeout, lambda: None))
    try:
        content = read_config(settings.cloud_config)
        provider = load_provider(settings.cloud_provider)
        path, cluster = settings.cloud_config, settings.cluster_name
        is_untagged = settings.allow_untagged_cloud
        context = ProviderContext(gate, content, path, cluster, CALLER, is_untagged)
        await provider.initialize(context)
    except ConfigurationFaults as faults:
        return Started(None, purse, tuple(faults.faults))
    except ConfigurationFault as fault:
        return Started(None, purse, (fault,))
    except Exception as bug:  # around one callback: somebody else's code
        log.debug("provider failed", exc_info=True)
        return Started(None, purse, bug=repr(bug))
    try:
        if not settings.allow_untagged_cloud:
            require_cluster_id(provider, settings)
    except ConfigurationFault as fault:
        return Started(provider, purse, (fault,))
    return Started(provider, purse)


def samples(nodes: Sequence[Node], scheme: str, size: int) -> list[Sequence[Node]]:
    """Nodes to ask the cloud about, at most `size` in one read: some by name, some by ID.

    The two are asked about apart: a cloud needs a call for each.
    """
    ours = [node for node in nodes if not node.is_foreign(scheme)]
    nameless = [node for node in ours if not node.provider_id][:size]
    known = [node for node in ours if node.provider_id][:size]
    return [part for part in (nameless, known) if part] or [[NOBODY]]


class Reader:
    """Asks one question after the other, so that each one's cost is known."""

    def __init__(self, purse: Counted) -> None:
        self._purse = purse
        self.reads: list[Read] = []

    async def ask(
        self, part: str, question: str, method: Callable[..., Any | Awaitable[Any]], *about: Any
    ) -> None:
        before = Counter(self._purse.spent)
        answers: Mapping[str, Answer] = {}
        error: CloudError | None = None
        try:
            said = await invoke(method, *about)
            answers = said if isinstance(said, Mapping) else {}
        except CloudError as failure:
            error = failure
        except Exception as bug:  # around one callback: somebody else's code
            log.debug("provider failed", exc_info=True)
            error = CloudError(f"the provider failed: {bug!r}")
        spent = Counter(self._purse.spent) - before
        self.reads.append(Read(part, question, spent, answers, error))


def own_volume(provider: CloudProvider, volumes: Sequence[PersistentVolume]) -> list[Any]:
    """One volume that the provider knows about, if there is one."""
    part = provider.volumes
    if part is None:
        return []
    own = (
        v for v in volumes if v.csi_driver in part.csi_drivers or part.legacy_sources & {*v.spec}
    )
    return [*own][:1]
