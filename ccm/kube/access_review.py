"""What an identity may do, asked of the API server (SubjectAccessReview); nothing is stored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ccm.background import gather_all
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping
from ccm.model.rbac import PolicyRule

API_VERSION = "authorization.k8s.io/v1"
REQUEST_TIMEOUT = 5.0  # seconds


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
    """Whether the service account `user`, or else our own account, has these permissions."""
    reviews = (
        AccessReview(rule, verb, name)
        for rule in rules
        for verb in rule.verbs
        for name in rule.names or ("",)
    )
    return await gather_all(_answered(kube, review, user) for review in reviews)


async def _answered(kube: Kube, review: AccessReview, user: str) -> AccessReview:
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    attributes = review.resource_attributes()
    spec: Json = {"resourceAttributes": attributes}
    if user:  # in the groups that the API server gives it
        everywhere = "system:serviceaccounts"
        groups = [everywhere, f"{everywhere}:{user.split(':')[2]}", "system:authenticated"]
        spec |= {"user": user, "groups": groups}
    body = {"apiVersion": API_VERSION, "kind": kind, "spec": spec}
    try:
        answer = await kube.post(f"/apis/{API_VERSION}/{kind.lower()}s", body, REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status == 403:
            return review
        raise
    asked = mapping(mapping(answer.get("spec")).get("resourceAttributes"))
    if _without_empty(asked) != _without_empty(attributes):
        raise Unreachable(f"{kind}: the answer is about another request")
    is_allowed = mapping(answer.get("status")).get("allowed")
    if not isinstance(is_allowed, bool):
        raise Unreachable(f"{kind}: the answer is empty")
    return replace(review, is_allowed=is_allowed)


def _without_empty(attributes: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in attributes.items() if value}
