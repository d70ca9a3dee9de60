"""Which cluster this is, by the UID of a namespace that is there as long as the cluster is, and of
which version."""

import asyncio
import logging

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.model.objects import mapping, text
from ccm.model.rbac import PolicyRule

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
PATH = f"/api/v1/namespaces/{NAMESPACE}"
DENIALS, DENIAL_PAUSE = 4, 1.0
"""So many answers in a row, so many seconds apart, that it may not be read, or is not there."""
POLICY_RULE = PolicyRule(
    "namespaces", ("get",), "the cluster's UID, to mark what is ours in the cloud", "", NAMESPACE,
    (NAMESPACE,),
)  # fmt: skip


async def read_cluster_uid(kube: Kube) -> str:
    """The UID; empty, and a warning, where it may not be read.

    An API server that starts denies everything at first, and that of a new cluster has yet to make
    the namespace; what is concluded here holds as long as this process.
    """
    for denials in range(1, DENIALS + 1):
        try:
            found = about(PATH, await kube.get(PATH))
            return text(mapping(found.get("metadata")).get("uid"))
        except KubernetesError as error:
            if not error.is_denied_or_gone:
                raise
            why = str(error)
        if denials < DENIALS:
            await asyncio.sleep(DENIAL_PAUSE)
    extra = {"namespace": NAMESPACE, "why": why, "instead": "--cluster-name"}
    log.warning("the cluster's UID cannot be read", extra=extra)
    return ""


async def read_version(kube: Kube) -> str:
    """The API server's version as `v1.37.2`; `unknown` when it does not report it."""
    try:
        return text((await kube.get("/version")).get("gitVersion")) or "unknown"
    except (KubernetesError, Unreachable):
        return "unknown"
