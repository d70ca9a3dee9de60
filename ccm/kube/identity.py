"""Service accounts of the workers: their names, tokens for them, and how a worker wears one."""

import asyncio
from collections.abc import Callable, Iterable
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
"""Duty → service account, as upstream names it.

Not `node-controller`: kube-controller-manager acts under that name, and may delete Pods with it.
"""

LIFETIME = 3600  # seconds that a token is asked to be valid, as upstream asks
PATIENCE = 10.0  # seconds until a request for one is given up
_COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


def rights(accounts: Iterable[str]) -> tuple[PolicyRule, ...]:
    """What whoever asks for the tokens of these accounts needs; to make accounts is no part."""
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
    """A bearer token, and for how many seconds from its answer it is good."""

    bearer: str = field(repr=False)
    seconds: float


async def request_token(kube: Kube, account: str) -> Token:
    """A token of the account, which is made when it is missing and we may."""
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
        "spec": {"expirationSeconds": LIFETIME},
    }
    answer = await kube.post(f"{_COLLECTION}/{account}/token", body, PATIENCE)
    bearer = text(mapping(answer.get("status")).get("token"))
    # The answer says how long the API server really allows; a clock need not agree with ours.
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
        await kube.post(_COLLECTION, body, PATIENCE)
    except KubernetesError as error:
        if error.status != 409:  # somebody was faster
            raise


class Identity:
    """Who a worker is to the API server: nobody until its supervisor has given it a token.

    An empty one will do where a certificate speaks. `complain` is called once for each token that
    the API server does not take.
    """

    def __init__(self, complain: Callable[[], object]) -> None:
        self._complain = complain
        self._bearer, self._refused = "", ""
        self._came = asyncio.Event()

    def take(self, bearer: str) -> None:
        """Speak with this token from the next request on."""
        self._bearer = bearer
        self._came.set()

    async def bearer(self) -> str:
        """The token, as soon as there is one; see `ccm.kube.access.Bearer`."""
        await self._came.wait()
        return self._bearer

    def refused(self) -> None:
        """The API server does not know the token, or not any more."""
        if self._refused != self._bearer:
            self._refused = self._bearer
            self._complain()
