"""TLS of the server: each handshake uses the newest certificates and the newest CAs.

A context cannot forget a CA, and half a change of its certificate would break it. So a change makes
new contexts, and the one context that listens only picks among them, handshake by handshake.
"""

import asyncio
import datetime
import logging
import os
import ssl
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ccm.directories import check_trusted, read_bounded
from ccm.errors import ConfigurationFault
from ccm.settings import Settings
from ccm.supervisor.https.client_ca import value_errors
from ccm.supervisor.https.timings import HttpsTimings

log = logging.getLogger(__name__)

FILE_NAME = "cloud-controller-manager"  # of the key pair in --cert-dir, as upstream
SELF_SIGNED_VALIDITY = datetime.timedelta(days=365)
SELF_SIGNED_ADDRESSES = ("127.0.0.1", "::1")

TLS_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

P256 = 23
CURVES = {P256: "prime256v1", 24: "secp384r1", 25: "secp521r1"}
"""IANA's numbers → OpenSSL's names of the curves that Python can set, one alone."""
if ssl.OPENSSL_VERSION_INFO >= (3,):
    CURVES[29] = "X25519"

TLS13_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""They cannot be chosen, here as upstream."""

DEFAULT_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Up to TLS 1.2: without CBC and with forward secrecy."""

OPENSSL_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
"""Upstream's suites up to TLS 1.2; those with RC4 and 3DES are not in OpenSSL any more."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its chain, and its private key: both PEM."""

    certificate: bytes
    key: bytes

    def leaf(self) -> x509.Certificate:
        """The certificate without its chain; raises ValueError when it is invalid."""
        with value_errors():
            return x509.load_pem_x509_certificate(self.certificate)

    def names(self) -> tuple[str, ...]:
        """The DNS names that it is for; raises ValueError as `leaf` does."""
        with value_errors():
            try:
                names = self.leaf().extensions.get_extension_for_class(x509.SubjectAlternativeName)
            except x509.ExtensionNotFound:
                return ()
            return tuple(names.value.get_values_for_type(x509.DNSName))

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises OSError when certificate and key do not fit."""
        # It can be loaded by name only. This file is in memory and gone when it is closed.
        file = os.memfd_create(FILE_NAME)
        try:
            os.write(file, self.certificate.rstrip() + b"\n" + self.key)
            context.load_cert_chain(f"/proc/self/fd/{file}", password=_no_password)
        finally:
            os.close(file)


@dataclass(frozen=True, slots=True)
class KeyPairFiles:
    """The files of a key pair, and the flag that names them."""

    flag: str
    certificate: Path
    key: Path

    def read(self, known: Collection[KeyPair] = ()) -> KeyPair:
        """What the files hold now; raises OSError, and ValueError for an invalid certificate.

        Those `known` are not parsed again.
        """
        pair = KeyPair(read_bounded(self.certificate), read_bounded(self.key))
        if pair not in known:
            pair.names()
        return pair

    def create(self) -> None:
        """Make a key pair unless there is one; half of one raises ValueError."""
        if self.certificate.exists() and self.key.exists():
            return
        if self.certificate.exists() or self.key.exists():
            raise ValueError(
                f"{self.certificate.name} and {self.key.name} must be there both, or none"
            )
        pair = self_signed()
        self.certificate.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            for path, content, mode in (
                (self.key, pair.key, 0o600),
                (self.certificate, pair.certificate, 0o644),
            ):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with open(os.open(path, flags, mode), "wb") as file:
                    file.write(content)
        except OSError:  # half of it would be a fault for ever
            self.key.unlink(missing_ok=True)
            self.certificate.unlink(missing_ok=True)
            raise


def pair_in(cert_dir: str) -> KeyPairFiles:
    """The pair that is, or is to be, in the directory of `--cert-dir`."""
    stem = Path(cert_dir) / FILE_NAME
    return KeyPairFiles("--cert-dir", Path(f"{stem}.crt"), Path(f"{stem}.key"))


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The key pairs to serve, and the CAs of client certificates as PEM: empty for none."""

    pairs: tuple[KeyPair, ...]
    client_cas: str


class ServingTls:
    """`context` is for the listening socket; `refresh` takes up what changed in the files."""

    def __init__(
        self,
        settings: Settings,
        client_cas: Callable[[], str],
        timings: HttpsTimings = HttpsTimings(),
    ) -> None:
        self._settings, self._client_cas = settings, client_cas
        self._renew_before = timings.renew_before
        self._self_signed: KeyPair | None = None
        self._files: list[KeyPairFiles] = []
        self._material: TlsMaterial | None = None
        self._default = self.context = self._make_context("")
        self._by_name: dict[str, ssl.SSLContext] = {}
        self._error = ""
        self.context.sni_callback = self._choose
        # A resumed session would bring along what an earlier handshake verified.
        self.context.num_tickets = 0
        self.context.options |= ssl.OP_NO_TICKET

    async def load(self) -> None:
        """Read everything for the first time; raises `ConfigurationFault` with the flag."""
        self._files = await asyncio.to_thread(self._find_files)
        for files in self._files:
            try:
                self._make_context("", await asyncio.to_thread(files.read))
            except (OSError, ValueError) as error:
                raise ConfigurationFault(
                    files.flag,
                    f"{files.certificate} and {files.key} are not usable: {error}",
                    "give a certificate and its key, both PEM, that this user may read",
                ) from error
        await self.refresh()
        if self._material is None:
            raise ConfigurationFault("--client-ca-file", self._error, "OpenSSL must take it")

    async def refresh(self) -> None:
        """Use what the files hold now; what is not usable is not taken up until it is."""
        try:
            pairs = await asyncio.to_thread(self._read)
            material = TlsMaterial((*self._generated(), *pairs), self._client_cas())
            if material != self._material:
                self._use(material)
            self._report("")
        except (OSError, ValueError) as error:
            self._report(str(error))

    def _read(self) -> list[KeyPair]:
        known = self._material.pairs if self._material else ()
        return [files.read(known) for files in self._files]

    def expiry(self) -> float:
        """When the default certificate expires, as Unix time."""
        material = self._material
        return material.pairs[0].leaf().not_valid_after_utc.timestamp() if material else 0.0

    def _find_files(self) -> list[KeyPairFiles]:
        settings, found = self._settings, []
        if settings.tls_cert_file:
            paths = Path(settings.tls_cert_file), Path(settings.tls_private_key_file)
            found.append(KeyPairFiles("--tls-cert-file", *paths))
        elif settings.cert_dir:
            files = pair_in(settings.cert_dir)
            try:
                files.create()
                check_trusted(files.certificate)
                check_trusted(files.key)
            except (OSError, ValueError) as error:
                problem = f"no pair in {settings.cert_dir}: {error}"
                raise ConfigurationFault(
                    files.flag, problem, "let this user write there"
                ) from error
            found.append(files)
        for pair in settings.tls_sni_cert_key:
            paths = Path(pair.cert_file), Path(pair.key_file)
            found.append(KeyPairFiles("--tls-sni-cert-key", *paths))
        return found

    def _generated(self) -> tuple[KeyPair, ...]:
        """The self-signed key pair, when no file gives the default one."""
        if self._settings.tls_cert_file or self._settings.cert_dir:
            return ()
        renew_at = datetime.datetime.now(datetime.UTC) + self._renew_before
        if self._self_signed is None or self._self_signed.leaf().not_valid_after_utc < renew_at:
            self._self_signed = self_signed()
        return (self._self_signed,)

    def _use(self, material: TlsMaterial) -> None:
        """Make the contexts, and use them only when all of them are good."""
        default, *others = [self._make_context(material.client_cas, it) for it in material.pairs]
        by_name: dict[str, ssl.SSLContext] = {}
        for flag, pair, context in zip(
            self._settings.tls_sni_cert_key, material.pairs[1:], others, strict=True
        ):
            for name in flag.names or pair.names():
                by_name.setdefault(name.lower(), context)  # of two for a name, the first counts
        self._default, self._by_name = default, by_name
        # The one thing that a handshake does not take from the context that is picked.
        self.context.verify_mode = ssl.CERT_OPTIONAL if material.client_cas else ssl.CERT_NONE
        is_change, self._material = self._material is not None, material
        if is_change:
            until = material.pairs[0].leaf().not_valid_after_utc
            log.info("certificates changed", extra={"until": until.isoformat()})

    def _make_context(self, client_cas: str, pair: KeyPair | None = None) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of old versions: asked for
            context.minimum_version = TLS_VERSIONS[settings.tls_min_version]
        context.set_ciphers(openssl_names(settings.tls_cipher_suites) or DEFAULT_SUITES)
        # One alone: else a client may choose a group of OpenSSL's that takes 0.1 s of the loop.
        # P-256, which every client has to have, unless the flag leaves it out.
        curves = [it for it in settings.tls_curve_preferences if it in CURVES]
        context.set_ecdh_curve(CURVES[min(curves, default=P256)])
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a CA may be an intermediate
        if client_cas:
            context.load_verify_locations(cadata=client_cas)
        if pair:
            pair.load_into(context)
        return context

    def _choose(
        self, connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext
    ) -> None:
        name = (server_name or "").lower()
        wildcard = f"*.{name.partition('.')[2]}"
        found = self._by_name.get(name) or self._by_name.get(wildcard)
        connection.context = found or self._default

    def _report(self, error: str) -> None:
        """Log an error once."""
        if error and error != self._error:
            log.error("certificates not reloaded; the old ones stay", extra={"why": error})
        self._error = error


def openssl_names(suites: Sequence[str]) -> str:
    """OpenSSL's cipher list, empty for its defaults; raises `ConfigurationFault`."""
    unknown = [it for it in suites if it not in OPENSSL_SUITES and it not in TLS13_SUITES]
    if unknown:
        raise ConfigurationFault(
            "--tls-cipher-suites",
            f"{', '.join(unknown)}: not known or not offered by OpenSSL",
            f"choose from {', '.join(sorted({*OPENSSL_SUITES, *TLS13_SUITES}))}",
        )
    return ":".join(
        dict.fromkeys(OPENSSL_SUITES[name] for name in suites if name in OPENSSL_SUITES)
    )


def self_signed() -> KeyPair:
    """A new key pair for clients on this host, which can trust it by pinning only."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    common_name = f"localhost@{now.timestamp():.0f}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    hosts = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(ip_address(ip)) for ip in SELF_SIGNED_ADDRESSES),
    ]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + SELF_SIGNED_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(
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
