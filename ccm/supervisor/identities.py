"""An identity for each duty: a fresh token of its service account, handed to its workers."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ccm.decide.backoff import Backoff
from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.kube.identity import ACCOUNTS, NAMESPACE, Token, request_token
from ccm.model.objects import Json

log = logging.getLogger(__name__)

RENEW_AT = 0.8  # of a token's life, as upstream
SOONEST = 5.0  # seconds between two tokens of one account, however often they are refused
RETRY = Backoff(first=0.5, most=30.0, jitter=0.5)


@dataclass
class _Account:
    """What we know of one service account; the token is good until `ends`."""

    name: str
    token: Token | None = None
    issued: float = 0.0
    trouble: str = ""
    is_forbidden: bool = False
    refused: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ends(self) -> float:
        return self.issued + self.token.seconds if self.token else 0.0

    @property
    def due(self) -> float:
        return self.issued + RENEW_AT * self.token.seconds if self.token else 0.0


class Identities:
    """Only the supervisor asks for tokens: a worker has its own and nothing to get another with.

    `hand(duty, bearer)` gives a new token to the workers of a duty that run. One that starts later
    gets what `bearer` returns.
    """

    def __init__(self, kube: Kube, hand: Callable[[str, str], None]) -> None:
        self._kube, self._hand = kube, hand
        self._accounts: dict[str, _Account] = {}

    async def begin(self, duties: Iterable[str]) -> None:
        """Ask for the first tokens; raises `ConfigurationFault` when we may not have them.

        Without an answer it returns, too: `run` asks again.
        """
        self._accounts = {duty: _Account(ACCOUNTS[duty]) for duty in duties}
        await asyncio.gather(*(self._renew(duty) for duty in self._accounts))
        for account in self._accounts.values():
            if account.is_forbidden:
                raise ConfigurationFault(
                    "--use-service-account-credentials",
                    f"no token of service account {NAMESPACE}/{account.name} ({account.trouble})",
                    "apply what 'ccm-supervisor manifests' prints for these flags",
                )

    async def run(self) -> None:
        """Keep every token fresh, for ever, also when there is none."""
        async with asyncio.TaskGroup() as group:
            for duty in self._accounts:
                group.create_task(self._keep(duty))
            await asyncio.Event().wait()

    def bearer(self, duty: str) -> str:
        """The token of this duty; empty when it has none, or none of its own."""
        account = self._accounts.get(duty)
        return account.token.bearer if account and account.token else ""

    def refused(self, duty: str) -> None:
        """The API server does not take the token: its account was made anew, perhaps."""
        if account := self._accounts.get(duty):
            log.warning("token refused", extra={"account": account.name})
            account.refused.set()

    def facts(self, now: float) -> Json:
        """What `status` shows."""
        return {
            account.name: {
                "seconds_left": round(max(account.ends - now, 0.0), 1),
                "trouble": account.trouble,
            }
            for account in self._accounts.values()
        }

    async def _keep(self, duty: str) -> None:
        account, failures = self._accounts[duty], 0
        while True:
            wait = RETRY.delay(failures, random.random()) if failures else 0.0
            await _pause(account, max(account.due - time.monotonic(), wait))
            failures = 0 if await self._renew(duty) else failures + 1

    async def _renew(self, duty: str) -> bool:
        account, asked = self._accounts[duty], time.monotonic()
        try:
            account.token = await request_token(self._kube, account.name)
        except (KubernetesError, Unreachable) as error:
            if not account.trouble:
                log.warning("no new token", extra={"account": account.name, "error": str(error)})
            account.trouble = str(error)
            account.is_forbidden = isinstance(error, KubernetesError) and error.status == 403
            return False
        if account.trouble:
            log.info("there is a new token again", extra={"account": account.name})
        account.issued, account.trouble = asked, ""
        self._hand(duty, account.token.bearer)
        return True


async def _pause(account: _Account, seconds: float) -> None:
    """Wait, but not longer than until the token is refused, if that is not just an echo."""
    try:
        async with asyncio.timeout(seconds):
            await account.refused.wait()
    except TimeoutError:
        return
    account.refused.clear()
    await asyncio.sleep(account.issued + SOONEST - time.monotonic())
