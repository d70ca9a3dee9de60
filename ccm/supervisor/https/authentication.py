"""Who sends a request: by a proxy's word, a client certificate, or a token of the cluster."""

import datetime
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID
from multidict import CIMultiDictProxy

from ccm import metrics
from ccm.counters import Counters
from ccm.kube.client import Kube
from ccm.model.objects import mapping, text
from ccm.supervisor.https.reviews import Answers, review
from ccm.supervisor.https.trust import CAs, ProxyHeaders, Trust

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"

Headers = CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True)
class User:
    """Somebody, as authorization knows him."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))


class Unauthenticated(Exception):
    """Credentials were given and are not good; without any, one is anonymous."""


class Authenticator:
    """Tries a proxy's headers, then the certificate itself, then the token, as upstream."""

    def __init__(
        self, trust: Callable[[], Trust], kube: Kube, token_seconds: float, counters: Counters
    ) -> None:
        self._trust, self._kube, self._counters = trust, kube, counters
        self._tokens: Answers[User | None] = Answers(lambda _: token_seconds)

    async def identify(self, request: web.BaseRequest) -> User:
        """Raises `Unauthenticated` for bad credentials, `ReviewFailed` when nobody can tell."""
        certificate = _certificate_of(request)
        if certificate and (user := self._by_certificate(certificate, request.headers)):
            return _authenticated(user)
        token = _token_in(request.headers)
        if token and (user := await self._by_token(token)):
            return _authenticated(user)
        if certificate or token:
            raise Unauthenticated
        return ANONYMOUS

    async def close(self) -> None:
        await self._tokens.close()

    def _by_certificate(self, certificate: x509.Certificate, headers: Headers) -> User | None:
        trust = self._trust()
        names = _values(certificate, NameOID.COMMON_NAME)
        allowed = {*trust.headers.names} or {*names}
        is_proxy = bool(allowed & {*names}) and _is_signed(certificate, trust.proxies)
        if is_proxy and (user := _named_by_proxy(headers, trust.headers)):
            return user
        if names and _is_signed(certificate, trust.clients):
            return User(names[-1], groups=_values(certificate, NameOID.ORGANIZATION_NAME))
        return None

    async def _by_token(self, token: str) -> User | None:
        # The token itself is a secret, which is not kept.
        return await self._tokens.get(sha256(token.encode()).digest(), lambda: self._ask(token))

    async def _ask(self, token: str) -> User | None:
        user, result = None, "failed"
        try:
            status = await review(self._kube, "token", {"token": token})
            if status.get("authenticated") is True:
                user = _user_in(status.get("user"))
            result = "yes" if user else "no"
        finally:
            self._counters.count(metrics.REVIEWS, "token", result)
        return user


def _certificate_of(request: web.BaseRequest) -> x509.Certificate | None:
    """What the client showed in the handshake, which checked its chain, purpose and dates."""
    connection = request.get_extra_info("ssl_object")
    shown = connection.getpeercert(True) if isinstance(connection, ssl.SSLObject) else None
    return x509.load_der_x509_certificate(shown) if shown else None


def _is_signed(certificate: x509.Certificate, cas: CAs) -> bool:
    """Whether one of these CAs, as they are now, signed it, and it has not run out meanwhile."""
    now = datetime.datetime.now(datetime.UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return False
    for ca in cas:
        try:
            certificate.verify_directly_issued_by(ca)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            continue
        return True
    return False


def _values(certificate: x509.Certificate, part: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(item.value) for item in certificate.subject.get_attributes_for_oid(part))


def _named_by_proxy(headers: Headers, known: ProxyHeaders) -> User | None:
    name = next(filter(None, (headers.get(header) for header in known.users)), "")
    if not name:
        return None
    uid = next(filter(None, (headers.get(header) for header in known.uids)), "")
    groups = (value for header in known.groups for value in headers.getall(header, ()))
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in known.extra_prefixes:
        for header in dict.fromkeys(key.lower() for key in headers):
            if header.startswith(prefix.lower()):
                key = unquote(header[len(prefix) :])
                extra[key] = (*extra.get(key, ()), *headers.getall(header))
    return User(name, uid, tuple(filter(None, groups)), tuple(sorted(extra.items())))


def _token_in(headers: Headers) -> str:
    scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
    return rest.split(" ")[0] if scheme.lower() == "bearer" else ""


def _user_in(found: Any) -> User | None:
    """The user of a TokenReview; None without a name."""
    body = mapping(found)
    extra = {key: _texts(values) for key, values in mapping(body.get("extra")).items()}
    user = User(
        text(body.get("username")),
        text(body.get("uid")),
        _texts(body.get("groups")),
        tuple(sorted(extra.items())),
    )
    return user if user.name else None


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(filter(None, map(text, values))) if isinstance(values, list) else ()


def _authenticated(user: User) -> User:
    if {AUTHENTICATED, UNAUTHENTICATED} & {*user.groups}:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
