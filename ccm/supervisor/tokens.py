"""The bearer tokens of the workers: where they come from, and the files they are handed over in."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ccm.decide.backoff import Backoff
from ccm.directories import replace_file
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, RestConfig
from ccm.kube.service_accounts import ServiceAccount, Token, request_token
from ccm.model.status import IdentityStatus

log = logging.getLogger(__name__)

RENEW_FRACTION = 0.8  # of a token's lifetime after which it is renewed, as upstream
MIN_RENEW_INTERVAL = 5.0  # seconds between two tokens of one account, however often refused
POLL_INTERVAL = 1.0  # seconds between two reads of our own token
RETRY = Backoff(first=0.5, most=30.0, jitter=0.5)

OnToken = Callable[[str, str], None]
"""Gets a controller and its new token, for the workers that run; others get it at their hello.

While it raises OSError, the token before stays theirs.
"""


class SharedToken:
    """The supervisor's own token for every controller; empty where a client certificate is used."""

    def __init__(
        self, config: RestConfig, on_token: OnToken, poll_interval: float = POLL_INTERVAL
    ) -> None:
        self._config, self._on_token, self._poll_interval = config, on_token, poll_interval
        self._controllers: list[str] = []
        self._token: str | None = None
        self._error = ""

    async def start(self, controllers: Iterable[str]) -> None:
        """Read the token."""
        self._controllers = list(controllers)
        self._token = await self._config.bearer()

    async def run(self) -> None:
        """Hand over a changed token, for ever."""
        while True:
            await asyncio.sleep(self._poll_interval)
            if (token := await self._config.bearer()) != self._token:
                self._hand_over(token)

    def token(self, controller: str) -> str | None:
        """The token of this controller; None before `start`."""
        return self._token

    def on_refused(self, controller: str) -> None:
        """The API server answered 401 to a worker."""
        log.warning("token refused", extra={"controller": controller})

    def status(self, now: float) -> dict[str, IdentityStatus]:
        """The part `identities` of `status`."""
        return {}

    def _hand_over(self, token: str) -> None:
        """It is the token once all have it; until then the next poll hands it over again."""
        try:
            for controller in self._controllers:
                self._on_token(controller, token)
        except OSError as error:
            if not self._error:
                log.warning("changed token not handed over", extra={"error": str(error)})
            self._error = str(error)
        else:
            self._token, self._error = token, ""


@dataclass
class _Account:
    """What we know of one service account."""

    account: ServiceAccount
    token: Token | None = None
    issued_at: float = 0.0
    error: str = ""
    refused: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def expires_at(self) -> float:
        return self.issued_at + self.token.seconds if self.token else 0.0

    @property
    def renew_at(self) -> float:
        return self.issued_at + RENEW_FRACTION * self.token.seconds if self.token else 0.0


class ServiceAccountTokens:
    """A token of each controller's own service account, which only the supervisor requests."""

    def __init__(
        self,
        kube: Kube,
        on_token: OnToken,
        accounts: Mapping[str, ServiceAccount],
        min_renew_interval: float = MIN_RENEW_INTERVAL,
    ) -> None:
        self._kube, self._on_token = kube, on_token
        self._min_renew_interval = min_renew_interval
        self._accounts = {worker: _Account(account) for worker, account in accounts.items()}

    async def start(self, controllers: Iterable[str]) -> None:
        """Request the first tokens; what fails `run` tries again."""
        await asyncio.gather(*(self._renew(controller) for controller in controllers))

    async def run(self) -> None:
        """Renew every token in time, for ever."""
        async with asyncio.TaskGroup() as group:
            for controller in self._accounts:
                group.create_task(self._keep_fresh(controller))
            await asyncio.Event().wait()

    def token(self, controller: str) -> str | None:
        """The token of this controller; None when there is none yet."""
        token = self._accounts[controller].token
        return token.bearer if token else None

    def on_refused(self, controller: str) -> None:
        """Request another one: the account was perhaps deleted and created again."""
        account = self._accounts[controller]
        log.warning("token refused", extra={"account": str(account.account)})
        account.refused.set()

    def status(self, now: float) -> dict[str, IdentityStatus]:
        """The part `identities` of `status`."""
        return {
            str(account.account): {
                "seconds_left": round(max(account.expires_at - now, 0.0), 1),
                "last_error": account.error,
            }
            for account in self._accounts.values()
        }

    async def _keep_fresh(self, controller: str) -> None:
        account, failures = self._accounts[controller], 0
        while True:
            due = account.renew_at - time.monotonic()
            wait = RETRY.delay(failures, random.random()) if failures else due
            await self._wait_until_due(account, wait)
            failures = 0 if await self._renew(controller) else failures + 1

    async def _wait_until_due(self, account: _Account, seconds: float) -> None:
        """Wait `seconds`, or until the token is refused and is old enough."""
        try:
            async with asyncio.timeout(seconds):
                await account.refused.wait()
        except TimeoutError:
            return
        account.refused.clear()
        await asyncio.sleep(account.issued_at + self._min_renew_interval - time.monotonic())

    async def _renew(self, controller: str) -> bool:
        account, requested_at = self._accounts[controller], time.monotonic()
        try:
            token = await request_token(self._kube, account.account)
            self._on_token(controller, token.bearer)
        except (KubernetesError, Unreachable, OSError) as error:
            if not account.error:
                extra = {"account": str(account.account), "error": str(error)}
                log.warning("no new token", extra=extra)
            account.error = str(error)
            return False
        if account.error:
            log.info("there is a new token again", extra={"account": str(account.account)})
        account.token, account.issued_at, account.error = token, requested_at, ""
        return True


TokenSource = SharedToken | ServiceAccountTokens
"""Where the workers' tokens come from: a worker has its own, and no means to request one."""


class TokenFiles:
    """One file a controller in the runtime directory (0700): tokens never travel over the bus."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: set[Path] = set()

    def write(self, controller: str, token: str) -> str:
        """The path of the file that now holds the token; a reader sees the old or the new one."""
        path = self._directory / f"{controller}.token"
        try:
            replace_file(path, token.encode())
        except OSError as error:
            # What a failed write says does not name the file.
            raise OSError(error.errno, error.strerror, str(path)) from error
        self._written.add(path)
        return str(path)

    def remove(self) -> None:
        """Delete all files written."""
        for path in self._written:
            path.unlink(missing_ok=True)
