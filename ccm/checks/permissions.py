"""The account of each process: may it do what its controllers need; nothing is stored."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ccm.checks.api_server import connect, exists
from ccm.checks.context import CheckContext, once
from ccm.checks.finding import Finding, failed, not_checked, ok, pluralize, warning
from ccm.kube.access_review import AccessReview, review_access
from ccm.kube.client import Kube
from ccm.kube.cluster_identity import POLICY_RULE as CLUSTER_UID
from ccm.kube.service_accounts import (
    BUILT_IN,
    ServiceAccount,
    accounts_of,
    own_account,
    policy_rules,
)
from ccm.manifests.rbac import subjects, worker_rules
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from ccm.supervisor.accounts import (
    APPLY_MANIFESTS,
    AccountCandidate,
    best,
    may_be_left_out,
    missing_account,
)
from ccm.worker_names import process_name

DISPENSABLE = ("events", CLUSTER_UID.resource)
"""Without these there are fewer Events, and marks have --cluster-name alone; all else is work."""


async def check_permissions(context: CheckContext) -> Iterable[Finding]:
    """Whether each process has what it needs; the supervisor is who asks."""
    supervisor, *workers = subjects(context.settings, "")
    rules = [rule for rule in supervisor.rules if rule.resource != "serviceaccounts/token"]
    reviews = await review_access(await connect(context), rules)
    findings = [*evaluate_reviews(supervisor.process, reviews)]
    if workers:
        for worker, candidates in (await review_candidates(context)).items():
            if chosen := best(candidates):
                process = f"{process_name(worker)} ({chosen.account})"
                findings += evaluate_reviews(process, chosen.reviews)
    return findings


def evaluate_reviews(process: str, reviews: Sequence[AccessReview]) -> Iterator[Finding]:
    """What a process lacks, one finding for each resource."""
    denied = [review for review in reviews if review.is_allowed is False]
    yield from _of_denied(process, denied)
    if any(review.is_allowed is None for review in reviews):
        yield not_checked(
            f"what {process} may do: this identity may not ask about others",
            "for this check, use a kubeconfig that may create subjectaccessreviews",
        )
    elif not denied:
        yield ok(f"{process}: {pluralize(len(reviews), 'permission')} needed, none is missing")


def _of_denied(process: str, denied: Sequence[AccessReview]) -> Iterator[Finding]:
    for rule, reviews in groupby(denied, lambda review: review.rule):
        verbs = ", ".join(dict.fromkeys(review.verb for review in reviews))
        message = f"{process} may not {verbs} {_target(rule)}: {rule.purpose}"
        report = warning if rule.resource in DISPENSABLE else failed
        yield report(message, APPLY_MANIFESTS)


def _target(rule: PolicyRule) -> str:
    group = f".{rule.group}" if rule.group else ""
    names = f" {', '.join(rule.names)}" if rule.names else ""
    where = f" in {rule.namespace}" if rule.namespace else ""
    return f"{rule.resource}{group}{names}{where}"


# service-accounts: the workers', with --use-service-account-credentials.


async def check_accounts(context: CheckContext) -> Iterable[Finding]:
    """Whether there is someone for each worker to act as."""
    if not context.settings.use_service_account_credentials:
        return [ok("all processes act as the same identity")]
    return evaluate_candidates(context.settings, await review_candidates(context))


def evaluate_candidates(
    settings: Settings, candidates: Mapping[str, Sequence[AccountCandidate]]
) -> Iterator[Finding]:
    """The account of each worker, by package; what none may do is a failure or is left out."""
    for worker, reviewed in candidates.items():
        if chosen := best(reviewed):
            message = f"{process_name(worker)} acts as {chosen.account}"
            if chosen.is_hidden:
                hidden = "which may not exist: this identity may not get service accounts"
                yield not_checked(f"{message}, {hidden}")
            else:
                yield ok(message if chosen is reviewed[0] else f"{message}, because {reviewed[0]}")
            continue
        fault = missing_account(settings, worker, reviewed)
        report = warning if may_be_left_out(settings, worker) else failed
        yield report(fault.problem, fault.remedy)


@once
async def review_candidates(context: CheckContext) -> Mapping[str, Sequence[AccountCandidate]]:
    """The accounts that each worker may use, as at a start, but without a token of theirs."""
    kube = await connect(context)
    own = await own_account(kube)
    return {
        worker: await asyncio.gather(
            *(_candidate(kube, account, rules, own) for account in accounts_of(worker, own))
        )
        for worker, rules in worker_rules(context.settings).items()
    }


async def _candidate(
    kube: Kube,
    account: ServiceAccount,
    rules: Sequence[PolicyRule],
    own: ServiceAccount | None,
) -> AccountCandidate:
    needed = policy_rules([account.name], account.namespace)
    is_there = await exists(kube, f"{account.collection}/{account.name}")
    if is_there is False:
        if account.name not in BUILT_IN.values():
            return AccountCandidate(account, problem="there is no such account")
        create = PolicyRule("serviceaccounts", ("create",), "", namespace=account.namespace)
        needed = (*needed, create)
    ourselves = AccountCandidate(account, await review_access(kube, needed))
    if ourselves.lacks:
        return AccountCandidate(account, problem=f"we may not {', '.join(ourselves.lacks)} there")
    user = "" if account == own else account.user  # of itself anybody may ask
    reviews = await review_access(kube, rules, user)
    return AccountCandidate(account, reviews, is_hidden=is_there is None)
