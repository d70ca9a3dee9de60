"""Serving certificates: read from files, or made here and signed by themselves."""

import datetime
import os
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = "cloud-controller-manager"  # of the pair in --cert-dir, as upstream
VALID_FOR = datetime.timedelta(days=365)
ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate, with its chain, and its key: both PEM."""

    certificate: bytes
    key: bytes

    def leaf(self) -> x509.Certificate:
        """The certificate itself; raises ValueError when it is none."""
        return x509.load_pem_x509_certificate(self.certificate)

    def names(self) -> tuple[str, ...]:
        """The host names that it is for."""
        try:
            names = self.leaf().extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return ()
        return tuple(names.value.get_values_for_type(x509.DNSName))

    def put_into(self, context: ssl.SSLContext) -> None:
        """Let `context` show this certificate; raises OSError when the parts do not fit."""
        # It can be loaded by name only. This file is in memory and gone when it is closed.
        file = os.memfd_create(NAME)
        try:
            os.write(file, self.certificate.rstrip() + b"\n" + self.key)
            context.load_cert_chain(f"/proc/self/fd/{file}", password=_no_password)
        finally:
            os.close(file)


def read_pair(cert_file: Path, key_file: Path) -> Pair:
    """What the files hold now."""
    return Pair(cert_file.read_bytes(), key_file.read_bytes())


def paths_in(directory: Path) -> tuple[Path, Path]:
    """Where the certificate and the key of `--cert-dir` are."""
    return directory / f"{NAME}.crt", directory / f"{NAME}.key"


def make_in(directory: Path) -> None:
    """Make a pair in `directory` unless there is one; half a pair raises ValueError."""
    cert_file, key_file = paths_in(directory)
    if cert_file.exists() and key_file.exists():
        return
    if cert_file.exists() or key_file.exists():
        raise ValueError(f"{cert_file.name} and {key_file.name} must be there both, or none")
    pair = self_signed()
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for path, content, mode in ((key_file, pair.key, 0o600), (cert_file, pair.certificate, 0o644)):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)


def self_signed() -> Pair:
    """A new pair for clients on this host, which can only trust it by having seen it."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    common_name = f"localhost@{now.timestamp():.0f}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    hosts = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(ip)) for ip in ADDRESSES)]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _no_password() -> bytes:
    """Without this, OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted; a key without a password is needed")
