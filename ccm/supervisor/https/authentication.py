"""Authenticates requests: by a front proxy's headers, a client certificate, or a bearer token."""

import datetime
import ssl
import time
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
from ccm.decide.budget import Allowances
from ccm.model.objects import mapping, text
from ccm.settings import Settings
from ccm.supervisor.https.client_ca import (
    CertificateAuthorities,
    ClientCAProvider,
    RequestHeaderNames,
)
from ccm.supervisor.https.connection import client_of
from ccm.supervisor.https.reviews import MAX_SENDERS, ReviewBudget, ReviewCache, Reviewer
from ccm.supervisor.listening import LOOPBACK, network_of

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
INVALID_TOKENS, INVALID_WINDOW = 20, 10.0  # so many of one address in so many seconds
VALID_TOKENS = 100  # the same of one user who is permitted, and may have any number

Headers = CIMultiDictProxy[str]
Sender = tuple[str, bool]
"""The address of a connection, and whether it had a permitted request."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A user as in Kubernetes' authentication API."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = UserInfo("system:anonymous", groups=(UNAUTHENTICATED,))


class Unauthenticated(Exception):
    """The credentials are not valid; a request without any is anonymous."""


class Authenticator:
    """Tries a front proxy's headers, then the client certificate, then the token, as upstream."""

    def __init__(
        self,
        settings: Settings,
        client_cas: ClientCAProvider,
        reviewer: Reviewer,
        counters: Counters,
    ) -> None:
        self._client_cas, self._reviewer, self._counters = client_cas, reviewer, counters
        ttl = settings.authentication_token_webhook_cache_ttl
        self._tokens: ReviewCache[UserInfo | None] = ReviewCache(lambda _: ttl)
        self._invalid = ReviewBudget(INVALID_TOKENS, INVALID_WINDOW)
        self._valid = Allowances[str](VALID_TOKENS, INVALID_WINDOW / VALID_TOKENS, MAX_SENDERS)

    async def authenticate(self, request: web.BaseRequest) -> UserInfo:
        """Raises `Unauthenticated`, `ReviewFailed` when a token cannot be reviewed, or

        `TooManyReviews` for a new token of an address that sent too many without a permission.
        A connection that had a permitted request is counted apart.
        """
        certificate = _client_certificate(request)
        if certificate and (user := self._by_certificate(certificate, request.headers)):
            return _authenticated(user)
        token = _bearer_token(request.headers)
        if token and (user := await self._by_token(token, _sender(request))):
            return _authenticated(user)
        if certificate or token:
            raise Unauthenticated
        return ANONYMOUS

    def on_permitted(self, request: web.BaseRequest, user: UserInfo) -> None:
        """From now on its token costs nothing, unless the user has very many.

        That one is valid is not enough: every tenant has accounts and tokens without number.
        """
        if _client_certificate(request) or not (token := _bearer_token(request.headers)):
            return
        key = _key(token)
        if key not in self._invalid:
            if self._valid.take(user.name, time.monotonic()):
                return
            self._invalid.give_back(_sender(request))
        self._invalid.on_result(key, is_good=True)

    async def close(self) -> None:
        """Cancel the reviews in flight."""
        await self._tokens.close()

    def _by_certificate(self, certificate: x509.Certificate, headers: Headers) -> UserInfo | None:
        trusted = self._client_cas.current
        names = _values(certificate, NameOID.COMMON_NAME)
        allowed = {*trusted.header_names.allowed_proxies} or {*names}
        is_proxy = bool(allowed & {*names}) and _is_signed(certificate, trusted.proxies)
        if is_proxy and (user := _user_in_headers(headers, trusted.header_names)):
            return user
        if names and _is_signed(certificate, trusted.clients):
            return UserInfo(names[-1], groups=_values(certificate, NameOID.ORGANIZATION_NAME))
        return None

    async def _by_token(self, token: str, sender: Sender) -> UserInfo | None:
        key = _key(token)
        return await self._tokens.get(key, lambda: self._review(token, key, sender))

    async def _review(self, token: str, key: bytes, sender: Sender) -> UserInfo | None:
        self._invalid.spend(sender, key)
        user, result, is_good = None, "failed", None
        try:
            is_known = key in self._invalid or sender[1]
            status = await self._reviewer.create("TokenReview", {"token": token}, is_known)
            if status.get("authenticated") is True:
                user = _user_in_review(status.get("user"))
            result, is_good = ("yes", None) if user else ("no", False)
        finally:
            self._counters.count(metrics.HTTPS_REVIEWS, "token", result)
            self._invalid.on_result(key, is_good)
        return user


def _key(token: str) -> bytes:
    """What is kept of a token, which is a secret."""
    return sha256(token.encode()).digest()


def _sender(request: web.BaseRequest) -> Sender:
    network, client = network_of(request.remote or ""), client_of(request)
    is_permitted = client is not None and client.is_permitted
    return LOOPBACK if network.startswith(LOOPBACK) else network, is_permitted


def _client_certificate(request: web.BaseRequest) -> x509.Certificate | None:
    """The TLS handshake has verified its chain, purpose and dates."""
    connection = request.get_extra_info("ssl_object")
    der = connection.getpeercert(True) if isinstance(connection, ssl.SSLObject) else None
    return x509.load_der_x509_certificate(der) if der else None


def _is_signed(certificate: x509.Certificate, cas: CertificateAuthorities) -> bool:
    """Whether one of the present CAs signed it, and it has not expired since the handshake."""
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


def _user_in_headers(headers: Headers, known: RequestHeaderNames) -> UserInfo | None:
    name = next(filter(None, (headers.get(header) for header in known.username)), "")
    if not name:
        return None
    uid = next(filter(None, (headers.get(header) for header in known.uid)), "")
    groups = (value for header in known.group for value in headers.getall(header, ()))
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in known.extra_prefixes:
        for header in dict.fromkeys(key.lower() for key in headers):
            if header.startswith(prefix.lower()):
                key = unquote(header[len(prefix) :])
                extra[key] = (*extra.get(key, ()), *headers.getall(header))
    return UserInfo(name, uid, tuple(filter(None, groups)), tuple(sorted(extra.items())))


def _bearer_token(headers: Headers) -> str:
    scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
    token = rest.split(" ")[0] if scheme.lower() == "bearer" else ""
    if not token.isascii():  # nor could it be sent for a review
        raise Unauthenticated
    return token


def _user_in_review(reviewed: Any) -> UserInfo | None:
    """None without a name."""
    body = mapping(reviewed)
    extra = {key: _texts(values) for key, values in mapping(body.get("extra")).items()}
    user = UserInfo(
        text(body.get("username")),
        text(body.get("uid")),
        _texts(body.get("groups")),
        tuple(sorted(extra.items())),
    )
    return user if user.name else None


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(filter(None, map(text, values))) if isinstance(values, list) else ()


def _authenticated(user: UserInfo) -> UserInfo:
    if {AUTHENTICATED, UNAUTHENTICATED} & {*user.groups}:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
