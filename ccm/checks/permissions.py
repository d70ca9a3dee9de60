"""Is every process allowed, at the API server, what its controllers need; nothing is stored."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ccm.checks.api_server import REQUEST_TIMEOUT, connect, exists
from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding, abbreviate, failed, not_checked, ok, pluralize, warning
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.kube.service_accounts import NAMESPACE
from ccm.manifests.rbac import subjects
from ccm.model.objects import Json, mapping
from ccm.model.rbac import PolicyRule

REVIEWS_PATH = "/apis/authorization.k8s.io/v1"
APPLY_MANIFESTS = "apply what 'ccm-supervisor manifests' prints for these flags"


@dataclass(frozen=True, slots=True)
class AccessReview:
    """One verb of a rule, on one object where the rule names some, and whether it is allowed.

    None where the API server did not let us ask.
    """

    rule: PolicyRule
    verb: str
    name: str = ""
    is_allowed: bool | None = None

    def resource_attributes(self) -> Json:
        """What is asked, as SubjectAccessReview has it."""
        resource, _, subresource = self.rule.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.rule.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.rule.namespace,
            "name": self.name,
        }


async def review_access(
    kube: Kube, rules: Iterable[PolicyRule], user: str = ""
) -> Sequence[AccessReview]:
    """Whether `user`, or else whoever asks, has these permissions."""
    reviews = (
        AccessReview(rule, verb, name)
        for rule in rules
        for verb in rule.verbs
        for name in rule.names or ("",)
    )
    return await asyncio.gather(*(_answered(kube, review, user) for review in reviews))


async def _answered(kube: Kube, review: AccessReview, user: str) -> AccessReview:
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    spec: Json = {"resourceAttributes": review.resource_attributes()}
    if user:  # a service account, in the groups that the API server gives it
        everywhere = "system:serviceaccounts"
        groups = [everywhere, f"{everywhere}:{user.split(':')[2]}", "system:authenticated"]
        spec |= {"user": user, "groups": groups}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    try:
        answer = await kube.post(f"{REVIEWS_PATH}/{kind.lower()}s", body, REQUEST_TIMEOUT)
    except KubernetesError as error:
        if user and error.status == 403:
            return review
        raise
    return replace(review, is_allowed=mapping(answer.get("status")).get("allowed") is True)


async def check_permissions(context: CheckContext) -> Iterable[Finding]:
    """Whether each process has what it needs.

    The supervisor is who asks; a worker with an account of its own is asked about.
    """
    kube = await connect(context)
    supervisor, *workers = subjects(context.settings, "")
    reviews = {supervisor.process: await review_access(kube, supervisor.rules)}
    for worker in workers:
        user = f"system:serviceaccount:{worker.namespace}:{worker.name}"
        reviews[f"{worker.process} ({user})"] = await review_access(kube, worker.rules, user)
    return [each for entry in reviews.items() for each in evaluate_reviews(*entry)]


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
        # Without Events people are told less; everything else is work that is not done.
        report = warning if rule.resource == "events" else failed
        yield report(message, APPLY_MANIFESTS)


def _target(rule: PolicyRule) -> str:
    group = f".{rule.group}" if rule.group else ""
    names = f" {', '.join(rule.names)}" if rule.names else ""
    where = f" in {rule.namespace}" if rule.namespace else ""
    return f"{rule.resource}{group}{names}{where}"


# service-accounts: the workers', with --use-service-account-credentials.


async def check_accounts(context: CheckContext) -> Iterable[Finding]:
    """Whether the service accounts exist that workers act as."""
    if not context.settings.use_service_account_credentials:
        return [ok("all processes act as the same identity")]
    kube = await connect(context)
    _, *workers = subjects(context.settings, "")
    names = [worker.name for worker in workers]
    paths = (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}" for name in names)
    found = await asyncio.gather(*(exists(kube, path) for path in paths))
    return evaluate_accounts(dict(zip(names, found, strict=True)))


def evaluate_accounts(accounts: Mapping[str, bool | None]) -> Iterator[Finding]:
    """Which service accounts do not exist; None is for those that we may not see."""
    hidden = [name for name, is_there in accounts.items() if is_there is None]
    missing = [name for name, is_there in accounts.items() if is_there is False]
    if missing:
        yield failed(f"no service account in {NAMESPACE}: {', '.join(missing)}", APPLY_MANIFESTS)
    if hidden:
        yield not_checked(f"this identity may not read service accounts: {abbreviate(hidden)}")
    if not missing and not hidden:
        yield ok(f"each has its account: {', '.join(accounts)}")
