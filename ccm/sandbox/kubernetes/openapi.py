"""The OpenAPI documents, as far as `kubectl apply` reads them; they hold no schemas.

kubectl looks for a patch operation of the kind it applies and for the parameter
`fieldValidation`, and then leaves validation to the server. Merge keys it finds in its own types,
because no operation here says that it takes a strategic merge patch.
"""

from __future__ import annotations

from collections.abc import Iterable

from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object

INFO = {"title": "Kubernetes", "version": "v1.36.0+sandbox"}


def openapi_index(api_versions: Iterable[str]) -> Object:
    """Return the document that names the others."""
    paths = ["api/v1" if each == "v1" else f"apis/{each}" for each in api_versions]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi_of(prefix: str, kinds: Iterable[Kind]) -> Object:
    """Return the document of one group and version."""
    paths = {}
    for kind in kinds:
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        paths[f"{prefix}{scope}/{kind.plural}/{{name}}"] = {"patch": _patch_operation(kind)}
    return {"openapi": "3.0.0", "info": INFO, "paths": paths, "components": {"schemas": {}}}


def _patch_operation(kind: Kind) -> Object:
    return {
        "operationId": f"patch{kind.name}",
        "parameters": [
            {
                "name": "fieldValidation",
                "in": "query",
                "description": "Accepted; unknown fields are stored as they come.",
                "schema": {"type": "string", "uniqueItems": True},
            }
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "version": kind.version,
            "kind": kind.name,
        },
    }
