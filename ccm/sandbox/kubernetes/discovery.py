"""The documents by which clients learn what this server serves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from ccm.sandbox.kubernetes.kinds import NAMESPACE, STATUS_VERBS, VERBS, Kind
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.openapi import openapi_index, openapi_of
from ccm.sandbox.kubernetes.reviews import REVIEWS

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+sandbox",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def documents(kinds: Iterable[Kind]) -> dict[str, Any]:
    """Return every discovery document by path; none of them ever changes."""
    by_group: dict[str, list[Object]] = defaultdict(list)
    by_version: dict[str, list[Kind]] = defaultdict(list)
    versions: dict[str, str] = {}
    for kind in kinds:
        by_group[kind.api_version].extend(_resources(kind))
        by_version[kind.api_version].append(kind)
        versions[kind.api_version] = kind.group
    for review in REVIEWS:
        by_group[review.api_version].append(review.resource)
        versions[review.api_version] = review.group
    groups = [_group(group, version) for version, group in versions.items() if group]
    found: dict[str, Any] = {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/openapi/v3": openapi_index(by_version),
    }
    for api_version, resources in by_group.items():
        path = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
        found[path] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version,
            "resources": resources,
        }
        found[f"/openapi/v3{path}"] = openapi_of(path, by_version[api_version])
    for group in groups:
        found[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    return found


def _group(name: str, api_version: str) -> Object:
    version = {"groupVersion": api_version, "version": api_version.rpartition("/")[2]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(kind: Kind) -> Iterator[Object]:
    resource: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        # The real server deletes namespaces one by one only.
        "verbs": [verb for verb in VERBS if (kind, verb) != (NAMESPACE, "deletecollection")],
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    yield resource
    if kind.has_status:
        yield {
            "name": f"{kind.plural}/status",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": list(STATUS_VERBS),
        }
