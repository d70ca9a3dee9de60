"""Who we are to Entra ID, and the requests that get a token of it.

Without a library: Microsoft's `azure-identity` has no deadline for a call and knows no gate
(docs/decisions).
"""

import json
import os
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import pkcs12

from ccm.cloud.credentials import read_secret
from ccm.cloud.json_api import Request
from ccm.directories import read_bounded
from ccm.errors import CloudError, Unauthenticated
from ccm.http import request_target
from ccm.model.objects import mapping, number, text
from ccm.providers.azure.config import ADFS, AzureConfig, Endpoints
from ccm.redaction import register_hidden, register_secrets

METADATA = "http://169.254.169.254"
METADATA_VARIABLE = "AZURE_POD_IDENTITY_AUTHORITY_HOST"
"""As in Microsoft's SDKs: who answers in place of the metadata service."""
METADATA_VERSION = "2018-02-01"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_LIFE = 600  # seconds
FORM = "application/x-www-form-urlencoded"
GET_TOKEN = "GetToken"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, as the files are now: one of a secret, a key with its certificate, a token file's
    content, or the machine's own identity when all of them are empty.
    """

    client_id: str
    secret: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    password: str = field(default="", repr=False)
    federated: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        register_hidden(self)

    @property
    def is_managed(self) -> bool:
        return not (self.secret or self.certificate or self.federated)


def read_identity(config: AzureConfig) -> Identity:
    """The identity that the configuration names, in upstream's order; raises `Unauthenticated`."""
    try:
        if config.use_federated_workload_identity_extension:
            token = read_secret(config.aad_federated_token_file)
            return Identity(config.aad_client_id, federated=token)
        if config.use_managed_identity_extension:
            return Identity(config.user_assigned_identity_id)
        if config.aad_client_secret:
            return Identity(config.aad_client_id, config.aad_client_secret)
        certificate = read_bounded(Path(config.aad_client_cert_path))
        password = config.aad_client_cert_password
        return Identity(config.aad_client_id, certificate=certificate, password=password)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        place = config.aad_federated_token_file or config.aad_client_cert_path
        raise Unauthenticated(f"the file with the credentials: {why}", place) from error


def metadata_url() -> str:
    """Where a managed identity's token is."""
    return os.environ.get(METADATA_VARIABLE, "").rstrip("/") or METADATA


def token_request(known: Identity, endpoints: Endpoints, tenant: str) -> Request:
    """What asks for a token for Resource Manager."""
    audience = endpoints.audience.rstrip("/")
    if known.is_managed:
        key = "msi_res_id" if "/" in known.client_id else "client_id"
        query = {"api-version": METADATA_VERSION, "resource": f"{audience}/"}
        query |= {key: known.client_id} if known.client_id else {}
        target = request_target("/metadata/identity/oauth2/token", query)
        headers = {"Metadata": "true"}
        return Request(GET_TOKEN, "identity", "GET", target, headers=headers, url=metadata_url())
    is_adfs = tenant.lower() == ADFS
    path = f"/{tenant}/oauth2/token" if is_adfs else f"/{tenant}/oauth2/v2.0/token"
    fields = {"grant_type": "client_credentials", "client_id": known.client_id}
    fields |= {"resource": audience} if is_adfs else {"scope": f"{audience}/.default"}
    if known.secret:
        fields["client_secret"] = known.secret
    else:
        fields["client_assertion_type"] = ASSERTION
        url = endpoints.login + path
        fields["client_assertion"] = known.federated or signed_assertion(known, url)
    return Request(
        GET_TOKEN,
        "identity",
        "POST",
        path,
        urlencode(fields).encode(),
        {"Content-Type": FORM},
        endpoints.login,
        changes_nothing=True,
    )


def signed_assertion(known: Identity, audience: str) -> str:
    """The JWT by which the key of a certificate shows that it is there; `Unauthenticated`."""
    key, certificate = _key_of(known)
    thumbprint = certificate.fingerprint(hashes.SHA256())
    header = {"alg": "PS256", "typ": "JWT", "x5t#S256": _encoded(thumbprint)}
    now = int(time.time())
    claims = {
        "aud": audience,
        "iss": known.client_id,
        "sub": known.client_id,
        "jti": str(uuid.uuid4()),
        "nbf": now - 60,
        "exp": now + ASSERTION_LIFE,
    }
    unsigned = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    salted = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    signature = key.sign(unsigned.encode(), salted, hashes.SHA256())
    register_secrets(assertion := f"{unsigned}.{_encoded(signature)}")
    return assertion


def _key_of(known: Identity) -> tuple[RSAPrivateKey, x509.Certificate]:
    """Key and certificate in a PEM or a PKCS #12."""
    password = known.password.encode() or None
    try:
        if b"-----BEGIN" in known.certificate:
            found: Any = serialization.load_pem_private_key(known.certificate, password)
            certificate = x509.load_pem_x509_certificate(known.certificate)
        else:
            found, first, _ = pkcs12.load_key_and_certificates(known.certificate, password)
            if first is None:
                raise ValueError("it has no certificate")
            certificate = first
    except (ValueError, TypeError) as error:
        raise Unauthenticated(f"aadClientCertPath: cannot be used: {error}") from error
    if not isinstance(found, RSAPrivateKey):
        raise Unauthenticated("aadClientCertPath: has no RSA key, which is all that Entra ID takes")
    return found, certificate


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and for how many seconds it is good."""

    value: str = field(repr=False)
    lifetime: float


def read_token(answer: Any) -> Token:
    """The token in an answer of Entra ID or of the metadata service."""
    found = mapping(answer)
    value, seconds = text(found.get("access_token")), found.get("expires_in")
    lifetime = float(text(seconds)) if text(seconds).isdecimal() else number(seconds)
    if not value or lifetime <= 0:
        raise CloudError("GetToken: the answer has no token or no life of it")
    return Token(value, lifetime)
