"""Who the workers are to the API server: a token for each duty, fresh, handed to its workers."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ccm.decide.backoff import Backoff
from ccm.errors import ConfigurationFault, KubernetesError, Unreachable
from ccm.kube.access import Access
from ccm.kube.client import Kube
from ccm.kube.identity import ACCOUNTS, NAMESPACE, Token, request_token
from ccm.model.objects import Json

log = logging.getLogger(__name__)

RENEW_AT = 0.8  # of a token's life, as upstream
SOONEST = 5.0  # seconds between two tokens of one account, however often they are refused
LOOK = 1.0  # seconds between two looks whether our own token is another one
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


Hand = Callable[[str, str], None]
"""Gives the workers of a duty that run a new token. One that starts later gets it at its hello."""


class Identities(Protocol):
    """Where the workers' tokens come from: a worker has its own, and nothing to get one with."""

    async def begin(self, controllers: Iterable[str]) -> None:
        """Get the first tokens; raises `ConfigurationFault` when we may not have them."""

    async def run(self) -> None:
        """Keep every token fresh, for ever, also when there is none."""

    def bearer(self, controller: str) -> str | None:
        """The token of this duty, empty where it needs none; None when there is none yet."""

    def refused(self, controller: str) -> None:
        """The API server does not take the token of this duty."""

    def status(self, now: float) -> Json:
        """What `status` shows."""


class Shared:
    """The supervisor's own token for every duty; a certificate may speak for all instead."""

    def __init__(self, access: Access, hand: Hand) -> None:
        self._access, self._hand = access, hand
        self._duties: list[str] = []
        self._bearer: str | None = None

    async def begin(self, controllers: Iterable[str]) -> None:
        self._duties = list(controllers)
        self._bearer = await self._access.bearer()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            if (bearer := await self._access.bearer()) != self._bearer:
                self._bearer = bearer
                for controller in self._duties:
                    self._hand(controller, bearer)

    def bearer(self, controller: str) -> str | None:
        return self._bearer

    def refused(self, controller: str) -> None:
        log.warning("token refused", extra={"controller": controller})

    def status(self, now: float) -> Json:
        return {}


class Accounts:
    """A token of each duty's own service account, which only the supervisor asks for."""

    def __init__(self, kube: Kube, hand: Hand) -> None:
        self._kube, self._hand = kube, hand
        self._accounts: dict[str, _Account] = {}

    async def begin(self, controllers: Iterable[str]) -> None:
        """As above; without an answer it returns, too: `run` asks again."""
        self._accounts = {controller: _Account(ACCOUNTS[controller]) for controller in controllers}
        await asyncio.gather(*(self._renew(controller) for controller in self._accounts))
        for account in self._accounts.values():
            if account.is_forbidden:
                raise ConfigurationFault(
                    "--use-service-account-credentials",
                    f"no token of service account {NAMESPACE}/{account.name} ({account.trouble})",
                    "apply what 'ccm-supervisor manifests' prints for these flags",
                )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self._accounts:
                group.create_task(self._keep(controller))
            await asyncio.Event().wait()

    def bearer(self, controller: str) -> str | None:
        token = self._accounts[controller].token
        return token.bearer if token else None

    def refused(self, controller: str) -> None:
        """Ask for another one: the account was made anew, perhaps."""
        account = self._accounts[controller]
        log.warning("token refused", extra={"account": account.name})
        account.refused.set()

    def status(self, now: float) -> Json:
        return {
            account.name: {
                "seconds_left": round(max(account.ends - now, 0.0), 1),
                "trouble": account.trouble,
            }
            for account in self._accounts.values()
        }

    async def _keep(self, controller: str) -> None:
        account, failures = self._accounts[controller], 0
        while True:
            wait = RETRY.delay(failures, random.random()) if failures else 0.0
            await _pause(account, max(account.due - time.monotonic(), wait))
            failures = 0 if await self._renew(controller) else failures + 1

    async def _renew(self, controller: str) -> bool:
        account, asked = self._accounts[controller], time.monotonic()
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
        self._hand(controller, account.token.bearer)
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
