"""Where access tokens come from: the sources of Google's libraries, in their order.

A key file is read again for each token. What a source asks is data here; who sends it is the API.
"""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ccm.cloud.config_file import secure_url
from ccm.cloud.credentials import read_secret
from ccm.directories import read_bounded
from ccm.errors import Unauthenticated
from ccm.model.objects import Json, mapping, text
from ccm.providers.gce.config import LIBRARY, METADATA_HOST, GlobalSection
from ccm.redaction import register_secrets

KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
METADATA_VARIABLE = "GCE_METADATA_HOST"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
JWT_LIFETIME = 3600  # seconds, the most that Google takes
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
METADATA_HEADERS = {"Metadata-Flavor": "Google"}


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """One request for a token; `body` is a form, or JSON that `headers` are with."""

    method: str
    url: str
    body: bytes | Json | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ServiceAccountKey:
    """The file of a service account's key: it signs what the token server checks.

    `signer` is `key`, which takes a while to read.
    """

    email: str
    key_id: str
    key: str = field(repr=False)
    signer: rsa.RSAPrivateKey = field(repr=False, compare=False)
    token_uri: str

    @property
    def account(self) -> str:
        return f"service account {self.email}"

    def request(self) -> TokenRequest:
        now = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        claims: Json = {"iss": self.email, "scope": SCOPE, "aud": self.token_uri}
        claims |= {"iat": now, "exp": now + JWT_LIFETIME}
        signed = f"{_encode(header)}.{_encode(claims)}"
        signature = _base64(self.signer.sign(signed.encode(), *_RS256))
        form = {"grant_type": JWT_GRANT, "assertion": f"{signed}.{signature}"}
        return TokenRequest("POST", self.token_uri, urlencode(form).encode(), FORM)


@dataclass(frozen=True, slots=True)
class ExternalAccount:
    """Workload identity federation: the cluster's own token is exchanged for one of Google's."""

    audience: str
    token_url: str
    subject_token: str = field(repr=False)
    subject_token_type: str
    impersonation_url: str = ""

    @property
    def account(self) -> str:
        return f"identity {self.audience}"

    def request(self) -> TokenRequest:
        form = {
            "grant_type": EXCHANGE_GRANT,
            "audience": self.audience,
            "scope": SCOPE,
            "requested_token_type": TOKEN_TYPE,
            "subject_token": self.subject_token,
            "subject_token_type": self.subject_token_type,
        }
        return TokenRequest("POST", self.token_url, urlencode(form).encode(), FORM)

    def impersonation(self, token: str) -> TokenRequest:
        """What gives the service account's own token for the one that was exchanged."""
        return _json_request(self.impersonation_url, {"scope": [SCOPE]}, token)


@dataclass(frozen=True, slots=True)
class MetadataServer:
    """The one of the machine that we run on: it gives tokens of the machine's service account."""

    host: str = METADATA_HOST
    account = "the machine's service account"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def request(self, path: str = "instance/service-accounts/default/token") -> TokenRequest:
        url = f"{self.url}/computeMetadata/v1/{path}"
        return TokenRequest("GET", url, headers=METADATA_HEADERS)


@dataclass(frozen=True, slots=True)
class TokenUrl:
    """`token-url` and `token-body` of the configuration."""

    url: str
    body: str = field(repr=False)
    account = "[global] token-url"

    def request(self) -> TokenRequest:
        return TokenRequest(
            "POST", self.url, self.body.encode(), {"Content-Type": "application/json"}
        )


Source = ServiceAccountKey | ExternalAccount | MetadataServer | TokenUrl


def read_source(section: GlobalSection, environment: Mapping[str, str]) -> Source:
    """Where tokens come from, as files are now; raises `Unauthenticated` with what is wrong."""
    if section.token_url not in ("", LIBRARY):
        return TokenUrl(section.token_url, section.token_body)
    if file := environment.get(KEY_FILE, ""):
        try:
            return _read_file(file)
        except ValueError as problem:
            why = f"the file of {KEY_FILE} {problem}"
            raise Unauthenticated(why, f"{KEY_FILE} {file}") from problem
    return metadata_server(environment)


def metadata_server(environment: Mapping[str, str]) -> MetadataServer:
    """The one of Google, or of the environment."""
    return MetadataServer(environment.get(METADATA_VARIABLE, "") or METADATA_HOST)


def _read_file(file: str) -> Source:
    """Raises `ValueError` with the problem, without the path: tenants may read it."""
    try:
        content: Any = json.loads(read_bounded(Path(file)))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except ValueError:
        raise ValueError("is not JSON") from None
    known = mapping(content)
    match text(known.get("type")):
        case "service_account":
            return _service_account(known)
        case "external_account":
            return _external_account(known)
        case kind:
            raise ValueError(
                f"has type {kind!r}: give the key of a service account, or external_account"
            )


def _service_account(known: Mapping[str, Any]) -> ServiceAccountKey:
    key = _required(known, "private_key")
    register_secrets(key)
    signer = _private_key(key)
    email, key_id = _required(known, "client_email"), text(known.get("private_key_id"))
    return ServiceAccountKey(email, key_id, key, signer, _url(known, "token_uri"))


def _external_account(known: Mapping[str, Any]) -> ExternalAccount:
    source = mapping(known.get("credential_source"))
    if "file" not in source:
        raise ValueError("has no credential_source.file: other sources are not supported")
    token = _subject_token(text(source["file"]), mapping(source.get("format")))
    impersonation = "service_account_impersonation_url"
    return ExternalAccount(
        _required(known, "audience"),
        _url(known, "token_url"),
        token,
        _required(known, "subject_token_type"),
        _url(known, impersonation) if impersonation in known else "",
    )


def _subject_token(file: str, form: Mapping[str, Any]) -> str:
    """The token in the file: all of it, or a field of JSON."""
    try:
        if form.get("type") != "json":
            return read_secret(file)
        content = mapping(json.loads(read_bounded(Path(file))))
    except (OSError, ValueError) as error:
        raise ValueError(f"names a credential_source.file that {_why(error)}") from error
    token = _required(content, text(form.get("subject_token_field_name")))
    register_secrets(token)
    return token


def _why(error: Exception) -> str:
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def _required(known: Mapping[str, Any], key: str) -> str:
    if not (value := text(known.get(key))):
        raise ValueError(f"lacks {key or 'subject_token_field_name'}")
    return value


def _url(known: Mapping[str, Any], key: str) -> str:
    """Only HTTPS, or this host: credentials go there."""
    try:
        return secure_url(_required(known, key))
    except ValueError:
        raise ValueError(f"has another {key} than an HTTPS URL") from None


def _private_key(pem: str) -> rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("has a private_key that is not RSA in PEM")
    return key


_RS256 = (padding.PKCS1v15(), hashes.SHA256())


def _json_request(url: str, body: Json, token: str) -> TokenRequest:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    return TokenRequest("POST", url, body, headers)


def _encode(part: Json) -> str:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
