"""Questions about access, which the sandbox answers with yes and does not store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ccm.sandbox.kubernetes.objects import Object, timestamp

USER = {
    "username": "sandbox",
    "groups": ["system:masters", "system:authenticated"],
}


@dataclass(frozen=True, slots=True)
class Review:
    """One resource that can only be created and whose status is the answer."""

    group: str
    name: str
    answer: Callable[[Object], Object]
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1"

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/v1/{self.name.lower()}s"

    @property
    def resource(self) -> Object:
        return {
            "name": f"{self.name.lower()}s",
            "singularName": self.name.lower(),
            "namespaced": self.namespaced,
            "kind": self.name,
            "verbs": ["create"],
        }

    def reply(self, asked: Object) -> Object:
        meta = {"creationTimestamp": timestamp()}
        answered = {"kind": self.name, "apiVersion": self.api_version, "metadata": meta}
        return {**answered, "spec": asked.get("spec", {}), "status": self.answer(asked)}


def _allow(asked: Object) -> Object:
    return {"allowed": True, "reason": "the sandbox allows everything"}


def _list_rules(asked: Object) -> Object:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    return {"resourceRules": [everything], "nonResourceRules": [], "incomplete": False}


def _authenticate(asked: Object) -> Object:
    return {"authenticated": True, "user": USER}


def _name_user(asked: Object) -> Object:
    return {"userInfo": USER}


REVIEWS = (
    Review("authorization.k8s.io", "SelfSubjectAccessReview", _allow),
    Review("authorization.k8s.io", "SubjectAccessReview", _allow),
    Review("authorization.k8s.io", "SelfSubjectRulesReview", _list_rules),
    Review("authentication.k8s.io", "TokenReview", _authenticate),
    Review("authentication.k8s.io", "SelfSubjectReview", _name_user),
)


def review_at(path: str) -> Review | None:
    """Return the review that a path names."""
    return next((review for review in REVIEWS if review.path == path), None)
