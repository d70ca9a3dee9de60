"""Service accounts of the workers: their names, and requests for their tokens."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ccm.controllers import DECLARATIONS
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.model.objects import mapping, text
from ccm.model.rbac import PolicyRule

NAMESPACE = "kube-system"
ACCOUNTS = {declaration.package: declaration.account for declaration in DECLARATIONS}
"""Package under `workers` → its service account in our manifests."""


def account_name(worker: str) -> str:
    """The service account of a worker in our manifests; of a provider's, `<name>-controller`."""
    return ACCOUNTS.get(worker, f"{worker}-controller")


BUILT_IN = {
    declaration.package: declaration.built_in_account
    for declaration in DECLARATIONS
    if declaration.built_in_account
}
"""The same → the account that the API server's bootstrap policy gives the rights for this work."""

TOKEN_LIFETIME = 3600  # seconds that are asked for, as upstream
REQUEST_TIMEOUT = 10.0  # seconds
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_PREFIX = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account by name."""

    name: str
    namespace: str = NAMESPACE

    @property
    def user(self) -> str:
        """What the API server calls it."""
        return f"{_PREFIX}{self.namespace}:{self.name}"

    @property
    def collection(self) -> str:
        """The path of all accounts of its namespace."""
        return f"/api/v1/namespaces/{self.namespace}/serviceaccounts"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def accounts_of(worker: str, own: ServiceAccount | None) -> Iterator[ServiceAccount]:
    """The accounts that a worker may use, the best first.

    `own` is our own account: it is the last one where no other has rights by itself.
    """
    yield ServiceAccount(account_name(worker))
    if built_in := BUILT_IN.get(worker):
        if built_in != account_name(worker):
            yield ServiceAccount(built_in)
    elif own:
        yield own


async def own_account(kube: Kube) -> ServiceAccount | None:
    """Our own service account; None when we are someone else, or the API server will not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await kube.post(SELF_REVIEWS, body, REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status not in (403, 404):
            raise
        return None
    user = text(mapping(mapping(answer.get("status")).get("userInfo")).get("username"))
    namespace, _, name = user.removeprefix(_PREFIX).partition(":")
    return ServiceAccount(name, namespace) if user.startswith(_PREFIX) and name else None


def policy_rules(names: Iterable[str], namespace: str = NAMESPACE) -> tuple[PolicyRule, ...]:
    """What it needs to request tokens of these accounts; creating accounts is not included."""
    return (
        PolicyRule(
            "serviceaccounts/token",
            ("create",),
            "tokens of the workers' service accounts, and of no other",
            namespace=namespace,
            names=tuple(names),
        ),
    )


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, and for how many seconds after the request it is valid."""

    bearer: str = field(repr=False)
    seconds: float


async def request_token(kube: Kube, account: ServiceAccount) -> Token:
    """A token of the account; a built-in one is created when it is missing and we may."""
    try:
        return await _request(kube, account)
    except KubernetesError as error:
        if error.status != 404 or account.name not in BUILT_IN.values():
            raise
    await _create(kube, account)
    return await _request(kube, account)


async def _request(kube: Kube, account: ServiceAccount) -> Token:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_LIFETIME},
    }
    path = f"{account.collection}/{account.name}"
    answer = about(path, await kube.post(f"{path}/token", body, REQUEST_TIMEOUT))
    bearer = text(mapping(answer.get("status")).get("token"))
    # The lifetime that the API server allows; its clock need not agree with ours.
    seconds = mapping(answer.get("spec")).get("expirationSeconds")
    if not bearer or not isinstance(seconds, int) or seconds <= 0:
        raise Unreachable(f"a token of {account}: the answer has none that is valid")
    return Token(bearer, float(seconds))


async def _create(kube: Kube, account: ServiceAccount) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": account.name, "namespace": account.namespace},
        "automountServiceAccountToken": False,
    }
    try:
        await kube.post(account.collection, body, REQUEST_TIMEOUT)
    except KubernetesError as error:
        if error.status != 409:  # someone was faster
            raise
