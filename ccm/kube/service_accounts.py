"""Service accounts of the workers: their names, and requests for their tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube
from ccm.model.objects import mapping, text
from ccm.model.rbac import PolicyRule

NAMESPACE = "kube-system"
ACCOUNTS = {
    "node": "cloud-node-controller",
    "route": "route-controller",
    "service": "service-controller",
    "volume_label": "volume-label-controller",
}
"""Controller → service account, as upstream names it.

Not `node-controller`: kube-controller-manager acts under that name, and may delete Pods with it.
"""

TOKEN_LIFETIME = 3600  # seconds that are asked for, as upstream
REQUEST_TIMEOUT = 10.0  # seconds
_COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


def policy_rules(accounts: Iterable[str]) -> tuple[PolicyRule, ...]:
    """What it needs to request tokens of these accounts; creating accounts is not included."""
    return (
        PolicyRule(
            "serviceaccounts/token",
            ("create",),
            "tokens of the workers' service accounts, and of no other",
            namespace=NAMESPACE,
            names=tuple(accounts),
        ),
    )


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, and for how many seconds after the request it is valid."""

    bearer: str = field(repr=False)
    seconds: float


async def request_token(kube: Kube, account: str) -> Token:
    """A token of the account, which is created when it is missing and we may."""
    try:
        return await _request(kube, account)
    except KubernetesError as error:
        if error.status != 404:
            raise
    await _create(kube, account)
    return await _request(kube, account)


async def _request(kube: Kube, account: str) -> Token:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_LIFETIME},
    }
    answer = await kube.post(f"{_COLLECTION}/{account}/token", body, REQUEST_TIMEOUT)
    bearer = text(mapping(answer.get("status")).get("token"))
    # The lifetime that the API server allows; its clock need not agree with ours.
    seconds = mapping(answer.get("spec")).get("expirationSeconds")
    if not bearer or not isinstance(seconds, int):
        raise Unreachable(f"a token of {account}: the answer has none")
    return Token(bearer, float(seconds))


async def _create(kube: Kube, account: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": account, "namespace": NAMESPACE},
        "automountServiceAccountToken": False,
    }
    try:
        await kube.post(_COLLECTION, body, REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status != 409:  # somebody was faster
            raise
