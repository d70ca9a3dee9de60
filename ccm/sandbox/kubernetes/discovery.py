"""The APIs without storage: discovery, OpenAPI, and access reviews that always say yes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ccm.sandbox.kubernetes.kinds import STATUS_VERBS, STORED_KINDS, VERBS, ResourceKind
from ccm.sandbox.kubernetes.objects import Object, timestamp

USER = {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}
ALLOWED = {"allowed": True, "reason": "the sandbox allows everything"}
ALL_RULES = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [],
    "incomplete": False,
}


@dataclass(frozen=True, slots=True)
class Review:
    """A resource that can only be created, is not stored, and answers with its status."""

    group: str
    name: str
    status: Object

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1"

    @property
    def resource(self) -> Object:
        return {
            "name": f"{self.name.lower()}s",
            "singularName": self.name.lower(),
            "namespaced": False,
            "kind": self.name,
            "verbs": ["create"],
        }

    def answer_to(self, asked: Object) -> Object:
        meta = {"creationTimestamp": timestamp()}
        answer = {"kind": self.name, "apiVersion": self.api_version, "metadata": meta}
        return {**answer, "spec": asked.get("spec", {}), "status": self.status}


REVIEWS = (
    Review("authorization.k8s.io", "SelfSubjectAccessReview", ALLOWED),
    Review("authorization.k8s.io", "SubjectAccessReview", ALLOWED),
    Review("authorization.k8s.io", "SelfSubjectRulesReview", ALL_RULES),
    Review("authentication.k8s.io", "TokenReview", {"authenticated": True, "user": USER}),
    Review("authentication.k8s.io", "SelfSubjectReview", {"userInfo": USER}),
)
REVIEWS_BY_PATH = {f"/apis/{each.api_version}/{each.name.lower()}s": each for each in REVIEWS}


VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+sandbox",
    **dict.fromkeys(("gitCommit", "gitTreeState", "goVersion", "compiler"), ""),
    "buildDate": "1970-01-01T00:00:00Z",
    "platform": "linux/amd64",
}


def documents() -> dict[str, Any]:
    """Return every discovery document by path; none of them ever changes."""
    versions = {each.api_version: each.group for each in (*STORED_KINDS, *REVIEWS)}
    groups = [_group(group, version) for version, group in versions.items() if group]
    openapi_paths: Object = {}
    found: dict[str, Any] = {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/openapi/v3": {"paths": openapi_paths},
    }
    for api_version in versions:
        path = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
        kinds = [kind for kind in STORED_KINDS if kind.api_version == api_version]
        reviews = [review for review in REVIEWS if review.api_version == api_version]
        found[path] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": [*chain(*map(_resources, kinds)), *(each.resource for each in reviews)],
        }
        found[f"/openapi/v3{path}"] = _openapi(path, kinds)
        if kinds:
            openapi_paths[path.strip("/")] = {"serverRelativeURL": f"/openapi/v3{path}"}
    for group in groups:
        found[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    return found


def _group(name: str, api_version: str) -> Object:
    version = {"groupVersion": api_version, "version": api_version.rpartition("/")[2]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(kind: ResourceKind) -> Iterator[Object]:
    resource: Object = {
        "name": kind.plural,
        "singularName": kind.name.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    yield resource
    if kind.has_status:
        yield {
            "name": f"{kind.plural}/status",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": list(STATUS_VERBS),
        }


def _openapi(prefix: str, kinds: Iterable[ResourceKind]) -> Object:
    """Return the OpenAPI document of one group and version, as far as `kubectl apply` reads it.

    It holds no schemas: kubectl looks for a patch operation of the kind it applies and for the
    parameter `fieldValidation`, and then leaves validation to the server. Merge keys it finds in
    its own types, because no operation here says that it takes a strategic merge patch.
    """
    paths = {}
    for kind in kinds:
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        paths[f"{prefix}{scope}/{kind.plural}/{{name}}"] = {"patch": _patch_operation(kind)}
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _patch_operation(kind: ResourceKind) -> Object:
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    named = {"group": kind.group, "version": kind.version, "kind": kind.name}
    return {
        "operationId": f"patch{kind.name}",
        "parameters": [parameter],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": named,
    }
