"""Certificate authorities of a test, and what they sign, as RFC 5280 has it.

Python verifies strictly since 3.13: key identifiers everywhere, and the usage of a CA's key.
"""

import datetime
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(
            serialization.Encoding.PEM, form, serialization.NoEncryption()
        )

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Put both into files, the certificate first."""
        cert_file, key_file = directory / f"{name}.crt", directory / f"{name}.key"
        cert_file.write_bytes(self.pem)
        key_file.write_bytes(self.key_pem)
        return cert_file, key_file

    def flags(self, directory: Path) -> dict[str, str]:
        """Those of a server with this pair, which is in files named `tls`."""
        cert_file, key_file = self.write(directory, "tls")
        return {"tls_cert_file": str(cert_file), "tls_private_key_file": str(key_file)}

    def present(self, directory: Path) -> ssl.SSLContext:
        """A client's context that shows this certificate and believes any server."""
        context = trusting_anybody()
        context.load_cert_chain(*self.write(directory, f"client-{id(self)}"))
        return context

    def serial(self) -> int:
        return self.certificate.serial_number


class Authority:
    """A CA; one of another CA when `issuer` is given.

    Without `is_strict`, it and what it signs lack usage and key identifiers, as what
    `openssl req -x509` makes.
    """

    def __init__(
        self, name: str, issuer: "Authority | None" = None, is_strict: bool = True
    ) -> None:
        self._is_strict = is_strict
        key = ec.generate_private_key(ec.SECP256R1())
        signer = issuer.own.key if issuer else key
        self.name = _name(name, ())
        builder = _builder(self.name, key).issuer_name(issuer.name if issuer else self.name)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        if is_strict:
            builder = builder.add_extension(_signs_certificates(), True)
            builder = builder.add_extension(_identifier_of(signer), False)
        self.own: Signed = Signed(builder.sign(signer, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.own.pem

    def client(
        self, name: str, *groups: str, purpose: str = "client", ends_in: datetime.timedelta = HOUR
    ) -> Signed:
        """A certificate for a client: CN is the user, O are the groups."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), key, ends_in).add_extension(
            x509.ExtendedKeyUsage([PURPOSES[purpose]]), False
        )
        return self._sign(builder, key)

    def server(self, *names: str, ends_in: datetime.timedelta = HOUR) -> Signed:
        """A certificate for a server with these host names."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(names[0], ()), key, ends_in).add_extension(_hosts(names), False)
        return self._sign(builder, key)

    def _sign(self, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> Signed:
        builder = builder.issuer_name(self.name)
        if self._is_strict:
            builder = builder.add_extension(_identifier_of(self.own.key), False)
        return Signed(builder.sign(self.own.key, hashes.SHA256()), key)


def self_signed(*names: str) -> Signed:
    """A certificate for a server with these host names that no authority has signed."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(names[0], ())
    builder = _builder(name, key).issuer_name(name).add_extension(_hosts(names), False)
    return Signed(builder.sign(key, hashes.SHA256()), key)


PURPOSES = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


def trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the default one reads all CAs of the host
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _name(common: str, organizations: tuple[str, ...]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, part) for part in organizations]
    named = [x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else []
    return x509.Name([*parts, *named])


def _hosts(names: Iterable[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(name) for name in names])


def _builder(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, ends_in: datetime.timedelta = HOUR
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 2 * HOUR)
        .not_valid_after(NOW + ends_in)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _identifier_of(issuer: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())


def _signs_certificates() -> x509.KeyUsage:
    others = "digital_signature content_commitment key_encipherment data_encipherment key_agreement"
    none = dict.fromkeys([*others.split(), "crl_sign", "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(key_cert_sign=True, **none)
