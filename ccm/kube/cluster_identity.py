"""Which cluster this is, by the UID of a namespace that is there as long as the cluster is, and of
which version."""

import logging

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.model.objects import mapping, text
from ccm.model.rbac import PolicyRule

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
PATH = f"/api/v1/namespaces/{NAMESPACE}"
POLICY_RULE = PolicyRule(
    "namespaces", ("get",), "the cluster's UID, to mark what is ours in the cloud", "", NAMESPACE,
    (NAMESPACE,),
)  # fmt: skip


async def read_cluster_uid(kube: Kube) -> str:
    """The UID; empty, and a warning, where it may not be read."""
    try:
        found = about(PATH, await kube.get(PATH))
    except KubernetesError as error:
        if error.status != 403 and not error.is_gone:
            raise
        extra = {"namespace": NAMESPACE, "why": str(error), "instead": "--cluster-name"}
        log.warning("the cluster's UID cannot be read", extra=extra)
        return ""
    return text(mapping(found.get("metadata")).get("uid"))


async def read_version(kube: Kube) -> str:
    """The API server's version as `v1.37.2`; `unknown` when it does not report it."""
    try:
        return text((await kube.get("/version")).get("gitVersion")) or "unknown"
    except (KubernetesError, Unreachable):
        return "unknown"
