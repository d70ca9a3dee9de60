"""The secrets of one cluster: its CA, serving certificate, tokens and service account key."""

import csv
import datetime
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "admin": ("system:masters",),
    "ccm": (),
    "nobody": (),
}
"""The identities with a static token, and their groups. Without a group: no rights."""

VALID_FOR = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files in one folder, readable by this user only, and the token of each identity."""

    folder: Path
    tokens: Mapping[str, str]

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate_file(self) -> Path:
        return self.folder / "serving.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / "serving.key"

    @property
    def service_account_key_file(self) -> Path:
        return self.folder / "service-account.key"

    @property
    def token_file(self) -> Path:
        return self.folder / "tokens.csv"


def create_credentials(folder: Path) -> Credentials:
    """Make new secrets and write them into `folder`, which must not exist yet."""
    folder.mkdir(mode=0o700)
    tokens = {identity: secrets.token_urlsafe(24) for identity in GROUPS}
    credentials = Credentials(folder, tokens)
    ca_key, serving_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _ca_certificate(ca_key)
    credentials.ca_file.write_bytes(_pem(ca))
    credentials.certificate_file.write_bytes(_pem(_serving_certificate(serving_key, ca, ca_key)))
    credentials.key_file.write_bytes(_key_pem(serving_key))
    service_account_key = ec.generate_private_key(ec.SECP256R1())
    credentials.service_account_key_file.write_bytes(_key_pem(service_account_key))
    with credentials.token_file.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows((tokens[name], name, name, ",".join(GROUPS[name])) for name in GROUPS)
    return credentials


def _ca_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("test CA")
    usage = _usage(digital_signature=False, key_cert_sign=True)
    return (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _serving_certificate(
    key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
    )
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    usage = _usage(digital_signature=True, key_cert_sign=False)
    return (
        _builder(_name("kube-apiserver"), ca.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, digital_signature: bool, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
