"""Asking the API server who may do what, by reviews that it answers and does not store."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ccm.checks.look.api import PATIENCE
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping
from ccm.model.rbac import PolicyRule

_REVIEWS = "/apis/authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Grain:
    """One verb of a right, on one object where the right names some."""

    right: PolicyRule
    verb: str
    name: str = ""

    def attributes(self) -> Json:
        resource, _, subresource = self.right.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.right.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.right.namespace,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """None where the API server did not let us ask."""

    grain: Grain
    is_allowed: bool | None


def grains(rights: Iterable[PolicyRule]) -> Iterator[Grain]:
    for right in rights:
        for verb in right.verbs:
            for name in right.names or ("",):
                yield Grain(right, verb, name)


async def ask(kube: Kube, rights: Iterable[PolicyRule], user: str = "") -> list[Answer]:
    """Whether `user`, or else whoever asks, has these rights."""
    return list(await asyncio.gather(*(_ask(kube, grain, user) for grain in grains(rights))))


async def _ask(kube: Kube, grain: Grain, user: str) -> Answer:
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    spec: Json = {"resourceAttributes": grain.attributes(), **({"user": user} if user else {})}
    if user:
        spec["groups"] = _groups(user)
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    try:
        answer = await kube.post(f"{_REVIEWS}/{kind.lower()}s", body, PATIENCE)
    except KubernetesError as error:
        if user and error.status == 403:
            return Answer(grain, None)
        raise
    return Answer(grain, mapping(answer.get("status")).get("allowed") is True)


def _groups(account: str) -> list[str]:
    """The groups that the API server gives a service account."""
    namespace = account.split(":")[2]
    return [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    ]
