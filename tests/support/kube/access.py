"""The RBAC objects that give one identity rights, and the question whether it has them yet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rule = Mapping[str, Sequence[str]]
"""An RBAC policy rule in its JSON form: apiGroups, resources, verbs, resourceNames, ..."""

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Subject:
    """A user, or a service account when it has a namespace."""

    name: str
    namespace: str | None = None

    @property
    def user(self) -> str:
        """The name under which RBAC reviews and the audit log know it."""
        if self.namespace is None:
            return self.name
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def reference(self) -> Mapping[str, str]:
        if self.namespace is None:
            return {"apiGroup": GROUP, "kind": "User", "name": self.name}
        return {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}


def binding(subject: Subject, role_kind: str, role_name: str) -> Mapping[str, Any]:
    """Return the body of the binding of the same name as its role."""
    return {
        "metadata": {"name": role_name},
        "roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role_name},
        "subjects": [subject.reference()],
    }


def reviews(
    subject: Subject, rules: Sequence[Rule], namespace: str | None
) -> Iterator[Mapping[str, Any]]:
    """Yield one SubjectAccessReview for each rule: the API server applies roles with a delay."""
    for rule in rules:
        yield {"spec": {"user": subject.user, **_attributes(rule, namespace)}}


def _attributes(rule: Rule, namespace: str | None) -> Mapping[str, Any]:
    verb = rule["verbs"][0]
    if urls := rule.get("nonResourceURLs"):
        return {"nonResourceAttributes": {"verb": verb, "path": urls[0]}}
    resource, _, subresource = rule["resources"][0].partition("/")
    return {
        "resourceAttributes": {
            "verb": verb,
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "name": next(iter(rule.get("resourceNames", ())), ""),
            "namespace": namespace or "",
        }
    }
