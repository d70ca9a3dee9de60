"""Certificates, versions and cipher suites in the handshake, and faults in the configuration."""

import asyncio
import os
import ssl
import stat
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ccm.errors import CannotListen, ConfigurationFault
from ccm.log import report_ignored_exceptions
from ccm.settings import CertKey, Settings
from ccm.supervisor.https.tls import OPENSSL_SUITES, pair_in
from ccm.supervisor.listening import listen
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import LocalServer, serving
from tests.support.deadlines import within
from tests.support.pki import Authority, trusting_anybody
from tests.support.waiting import until

CA = Authority("servers")
PAIR = "cloud-controller-manager"


async def test_without_flags_the_certificate_is_self_signed_for_localhost_and_can_be_pinned(
    server: LocalServer,
) -> None:
    certificate = await server.certificate()
    again = await server.certificate()
    assert certificate == again
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 365
    assert server.https.certificate_expiry() == certificate.not_valid_after_utc.timestamp()
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    pinned = ssl.create_default_context(cadata=pem)
    assert (await server.get("/healthz", tls=pinned, name="127.0.0.1")).status == 200


@pytest.mark.parametrize(
    "depth", [pytest.param(1, id="OP3-the-name-of-the-pair"), pytest.param(2, id="made-with-it")]
)
async def test_cert_dir_gets_a_key_pair_that_the_next_start_uses(
    reviews: ReviewApi, tmp_path: Path, depth: int
) -> None:
    directory = tmp_path.joinpath(*"ab"[:depth])
    async with serving(reviews, cert_dir=str(directory)) as server:
        first = await server.certificate()
    async with serving(reviews, cert_dir=str(directory)) as server:
        assert await server.certificate() == first
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {
        f"{PAIR}.crt": 0o644,
        f"{PAIR}.key": 0o600,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
async def test_a_key_pair_that_another_user_can_exchange_is_a_fault(
    reviews: ReviewApi, tmp_path: Path
) -> None:
    """They would have the key, or put theirs in its place."""
    async with serving(reviews, cert_dir=str(tmp_path / "own")):
        pass
    os.chown(tmp_path / "own", 12345, 12345)
    with pytest.raises(ConfigurationFault, match=r"--cert-dir: .*belongs to user 12345"):
        async with serving(reviews, cert_dir=str(tmp_path / "own")):
            pass


def test_a_pair_that_cannot_be_written_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: half a pair would be a fault of each start from then on."""
    files, opened = pair_in(str(tmp_path)), os.open

    def full(path: Path, *how: int) -> int:
        if path == files.certificate:
            raise OSError(ENOSPC, "No space left on device")
        return opened(path, *how)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space left"):
        files.create()
    monkeypatch.undo()
    files.create()
    assert files.read().names() == ("localhost",)


@pytest.mark.parametrize("which", ["crt", "key"])
async def test_half_a_key_pair_in_cert_dir_is_a_fault(
    reviews: ReviewApi, tmp_path: Path, which: str
) -> None:
    (tmp_path / f"{PAIR}.{which}").write_text("something")
    with pytest.raises(ConfigurationFault, match=r"--cert-dir: .* both, or none"):
        async with serving(reviews, cert_dir=str(tmp_path)):
            pass


async def test_the_whole_chain_is_sent(reviews: ReviewApi, tmp_path: Path) -> None:
    middle = Authority("middle", issuer=CA)
    signed = middle.server("localhost")
    flags = signed.flags(tmp_path)
    Path(flags["tls_cert_file"]).write_bytes(signed.pem + middle.pem)
    async with serving(reviews, **flags) as server:
        (tmp_path / "ca.crt").write_bytes(CA.pem)
        client = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        assert (await server.get("/healthz", tls=client)).status == 200


@pytest.fixture
async def by_name(
    reviews: ReviewApi, tmp_path: Path
) -> AsyncIterator[tuple[LocalServer, dict[int, str]]]:
    """A server with a default certificate and others for names, and their serial numbers."""
    pairs = {
        "default": CA.server("localhost"),
        "given": CA.server("other.example.com"),
        "own": CA.server("own.example.com", "own.example.org"),
        "wild": CA.server("*.wild.example.com"),
    }
    names = {"given": ("given.example.com", "own.example.org"), "own": (), "wild": ()}
    sni = []
    for name, wanted in names.items():
        cert_file, key_file = pairs[name].write(tmp_path, name)
        sni.append(CertKey(str(cert_file), str(key_file), wanted))
    flags = pairs["default"].flags(tmp_path)
    async with serving(reviews, tls_sni_cert_key=tuple(sni), **flags) as server:
        yield server, {signed.serial(): name for name, signed in pairs.items()}


@pytest.mark.parametrize(
    ("server_name", "expected"),
    [
        pytest.param("given.example.com", "given", id="OP3-a-name-of-the-flag"),
        pytest.param("other.example.com", "default", id="its-own-name-does-not-count-then"),
        pytest.param("own.example.com", "own", id="without-names-its-own-count"),
        pytest.param("own.example.org", "given", id="the-first-of-two-counts"),
        pytest.param("GIVEN.Example.com", "given", id="small-and-capital-letters"),
        pytest.param("a.wild.example.com", "wild", id="wildcard"),
        pytest.param("a.b.wild.example.com", "default", id="a-wildcard-is-one-label"),
        pytest.param("localhost", "default", id="default"),
        pytest.param(None, "default", id="no-name"),
    ],
)
async def test_sni_picks_the_certificate(
    by_name: tuple[LocalServer, dict[int, str]], server_name: str | None, expected: str
) -> None:
    server, names = by_name
    assert names[(await server.certificate(server_name)).serial_number] == expected


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            {"tls_cert_file": "/nowhere/a", "tls_private_key_file": "/nowhere/b"}, id="gone"
        ),
        pytest.param({"tls_cert_file": "garbage", "tls_private_key_file": "garbage"}, id="garbage"),
        pytest.param({"tls_cert_file": "a.crt", "tls_private_key_file": "b.key"}, id="no-pair"),
        pytest.param(
            {"tls_sni_cert_key": (CertKey("a.crt", "b.key", ("x",)),)}, id="no-pair-by-name"
        ),
        pytest.param(
            {"tls_cert_file": "a.crt", "tls_private_key_file": "locked.key"}, id="password"
        ),
        pytest.param({"client_ca_file": "garbage"}, id="client-CA"),
        pytest.param({"client_ca_file": "/nowhere/ca"}, id="client-CA-gone"),
        pytest.param({"requestheader_client_ca_file": "garbage"}, id="proxy-CA"),
        pytest.param({"tls_cipher_suites": ("TLS_NONSENSE",)}, id="suite"),
        pytest.param({"authentication_kubeconfig": "/nowhere/config"}, id="kubeconfig"),
        pytest.param({"authorization_kubeconfig": "/nowhere/config"}, id="other-kubeconfig"),
    ],
)
async def test_an_unusable_flag_is_named_at_the_start(
    reviews: ReviewApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        CA.server(name).write(tmp_path, name)
    Path("garbage").write_text("-----BEGIN NONSENSE-----")
    Path("locked.key").write_bytes(encrypted(Path("a.key").read_bytes()))
    flag = next(iter(broken)).replace("_", "-")
    why = "encrypted" if "locked.key" in broken.values() else ""  # without asking for a password
    with pytest.raises(ConfigurationFault, match=f"^--{flag}: .*{why}") as fault:
        async with serving(reviews, **broken):
            pass
    assert "\n" not in str(fault.value)


def encrypted(key: bytes) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def at_most(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = trusting_anybody()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize(
    ("flag", "version", "is_accepted"),
    [
        ("", ssl.TLSVersion.TLSv1_2, True),
        ("", ssl.TLSVersion.TLSv1_1, False),
        ("VersionTLS12", ssl.TLSVersion.TLSv1_2, True),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_2, False),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_3, True),
    ],
)
async def test_versions_below_the_flag_are_refused(
    reviews: ReviewApi, flag: str, version: ssl.TLSVersion, is_accepted: bool
) -> None:
    async with serving(reviews, tls_min_version=flag) as server:
        with nullcontext() if is_accepted else pytest.raises(OSError):
            await server.certificate(tls=at_most(version))


async def test_an_old_version_can_be_allowed(reviews: ReviewApi) -> None:
    async with serving(reviews, tls_min_version="VersionTLS10") as server:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert server.https._tls
            assert server.https._tls.context.minimum_version is ssl.TLSVersion.TLSv1
            # OpenSSL 3 renegotiates only when asked to, older ones whenever a client likes.
            assert server.https._tls.context.options & ssl.OP_NO_RENEGOTIATION


async def test_only_the_suites_of_the_flag_are_accepted(reviews: ReviewApi) -> None:
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    async with serving(reviews, tls_cipher_suites=suites) as server:
        await server.certificate(tls=offering("ECDHE-ECDSA-AES256-GCM-SHA384"))
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            await server.certificate(tls=offering("ECDHE-ECDSA-AES128-GCM-SHA256"))


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA"])
async def test_no_cbc_suite_is_offered_that_was_not_asked_for(
    server: LocalServer, suite: str
) -> None:
    with pytest.raises(aiohttp.ClientError):
        await server.get("/healthz", tls=offering(suite))
    assert (await server.get("/healthz", tls=offering("ECDHE+AESGCM"))).status == 200


def offering(suite: str) -> ssl.SSLContext:
    context = at_most(ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(suite)
    return context


@pytest.mark.parametrize("suite", OPENSSL_SUITES)
def test_openssl_knows_every_suite(suite: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(OPENSSL_SUITES[suite])
    assert OPENSSL_SUITES[suite] in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize("curves", [(23,), (24,), (29,), (29, 23), (4588,)])
async def test_curves_are_set_as_far_as_python_can(
    reviews: ReviewApi, curves: tuple[int, ...]
) -> None:
    async with serving(reviews, tls_curve_preferences=curves) as server:
        assert (await server.get("/healthz")).status == 200


def test_an_unusable_address_is_one_line_with_the_flag() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1") as error:
        listen(Settings(bind_address="192.0.2.1"))
    assert "\n" not in str(error.value)


async def test_a_generated_key_is_never_in_a_file(
    reviews: ReviewApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    async with serving(reviews) as server:
        await server.certificate()
    assert list(tmp_path.iterdir()) == []
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def hello(name: bytes) -> bytes:
    """The first words of a client that asks for a server of this name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting_anybody().wrap_bio(incoming, outgoing, server_hostname="x" * len(name))
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read().replace(b"x" * len(name), name)


async def test_a_server_name_that_is_no_text_is_logged_once(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python's ssl writes a traceback for each, which any client may cause without end."""
    before = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", before)
    report_ignored_exceptions()
    assert sys.unraisablehook is not before
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(hello(b"\xff" * 9))
        async with within():
            await reader.read()
        writer.close()
    assert (await server.get("/healthz")).status == 200
    assert caplog.text.count("exception ignored") == 1
