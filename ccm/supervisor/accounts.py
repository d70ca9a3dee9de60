"""The account of each worker; what it may do there is reviewed before the first one starts.

An account of our manifests has just its worker's rights, and comes first. In the place of an
upstream controller there is none: then it is the account that upstream's would act as, which has
these rights by the bootstrap policy of every API server.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ccm.background import gather_all
from ccm.controllers import VOLUME
from ccm.errors import AccessRefused, ConfigurationFault, KubernetesError
from ccm.kube.access_review import AccessReview, review_access
from ccm.kube.client import Kube, RestConfig
from ccm.kube.service_accounts import (
    ServiceAccount,
    Token,
    accounts_of,
    own_account,
    request_token,
)
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.settings.leader_migration import disable_controllers
from ccm.supervisor.preflight import address_flag
from ccm.worker_names import controller_names, process_name

log = logging.getLogger(__name__)

APPLY_MANIFESTS = "apply what 'ccm-supervisor manifests' prints for these flags"
RulesByWorker = Mapping[str, Sequence[PolicyRule]]
"""Package under `workers` → what that worker needs to be allowed."""


@dataclass(frozen=True, slots=True)
class Identities:
    """The accounts of workers, by controller, and the cluster they are for."""

    accounts: Mapping[str, ServiceAccount]
    cluster_uid: str = ""


@dataclass(frozen=True, slots=True)
class AccountCandidate:
    """Someone a worker may act as, ourselves if there is no account, and what he may do.

    `problem` says why he is out of the question; who is hidden may not exist.
    """

    account: ServiceAccount | None
    reviews: Sequence[AccessReview] = ()
    problem: str = ""
    is_hidden: bool = False

    @property
    def lacks(self) -> list[str]:
        """What he may not do of what the worker needs, such as `patch nodes/status`."""
        denied = (each for each in self.reviews if each.is_allowed is False)
        return [f"{each.verb} {each.rule.resource}" for each in denied]

    @property
    def is_useful(self) -> bool:
        """Whether he may do any of the work; to record Events does not count."""
        work = [each for each in self.reviews if each.rule.resource != "events"]
        is_refused = bool(work) and all(each.is_allowed is False for each in work)
        return not self.problem and not is_refused

    def __str__(self) -> str:
        name = str(self.account or "this identity")
        return (
            f"{name}: {self.problem}" if self.problem else f"{name} may not {', '.join(self.lacks)}"
        )


def best(candidates: Iterable[AccountCandidate]) -> AccountCandidate | None:
    """The first of those who lack least; None when no one may do any of the work."""
    useful = (each for each in candidates if each.is_useful)
    return min(useful, key=lambda each: len(each.lacks), default=None)


async def choose_accounts(
    kube: Kube, settings: Settings, rules: RulesByWorker
) -> tuple[Settings, dict[str, ServiceAccount]]:
    """The settings without what no account may do, and the account of each worker, if not ours.

    Upstream's library has no volume-label controller, so its rights may be missing everywhere:
    unless `--controllers` names that one, it is left out. Raises `AccessRefused` when no account
    may do any of the work of another worker, and `Unreachable` or `KubernetesError` when the API
    server does not say which may: what is chosen here lasts as long as this process.
    """
    own = await own_account(kube) if settings.use_service_account_credentials else None
    reviewed = await gather_all(
        _candidates(kube, settings, own, worker, rules[worker]) for worker in rules
    )
    accounts: dict[str, ServiceAccount] = {}
    for worker, candidates in zip(rules, reviewed, strict=True):
        chosen = best(candidates)
        if chosen is None:
            fault = missing_account(settings, worker, candidates)
            if not may_be_left_out(settings, worker):
                raise AccessRefused(str(fault))
            log.warning("controller left out", extra={"worker": worker, "why": str(fault)})
            settings = disable_controllers(settings, controller_names(worker))
        else:
            account = chosen.account
            if chosen.lacks:
                extra = {"worker": worker, "account": account or "own", "lacks": chosen.lacks}
                log.warning("account lacks rights", extra=extra)
            accounts |= {worker: account} if account else {}
    names = {worker: account.name for worker, account in accounts.items()}
    log.info("workers act as", extra={"accounts": names or "the supervisor's own"})
    return settings, accounts


def missing_account(
    settings: Settings, worker: str, candidates: Iterable[AccountCandidate]
) -> ConfigurationFault:
    """The fault that none of the candidates may do any of the worker's work."""
    has_own = settings.use_service_account_credentials
    return ConfigurationFault(
        "--use-service-account-credentials" if has_own else address_flag(settings),
        f"no identity may do the work of {process_name(worker)}: {'; '.join(map(str, candidates))}",
        APPLY_MANIFESTS,
    )


def may_be_left_out(settings: Settings, worker: str) -> bool:
    """Whether no flag names this worker, and no upstream controller has its work."""
    names = controller_names(worker)
    return names == (VOLUME,) and VOLUME not in settings.controllers


async def _candidates(
    kube: Kube,
    settings: Settings,
    own: ServiceAccount | None,
    worker: str,
    rules: Sequence[PolicyRule],
) -> list[AccountCandidate]:
    """The accounts that the worker may use, up to the first that lacks nothing."""
    if not settings.use_service_account_credentials:
        return [AccountCandidate(None, await review_access(kube, rules))]
    found: list[AccountCandidate] = []
    for account in accounts_of(worker, own):
        try:
            token = await request_token(kube, account)
        except KubernetesError as error:
            if not error.is_denied_or_gone:
                raise
            found.append(AccountCandidate(account, problem=f"no token ({error})"))
            continue
        found.append(AccountCandidate(account, await _reviewed(kube, token, rules)))
        if not found[-1].lacks:
            break
    return found


async def _reviewed(
    kube: Kube, token: Token, rules: Sequence[PolicyRule]
) -> Sequence[AccessReview]:
    """What the owner of the token may do."""

    async def bearer() -> str:
        return token.bearer

    config = RestConfig(kube.config.server.without_certificate(), bearer)
    owner = Kube(config, "ccm-supervisor/supervisor")
    try:
        return await review_access(owner, rules)
    finally:
        await owner.close()
