"""What the server shows in a handshake, and what it takes."""

import os
import ssl
import stat
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from ccm.errors import CannotListen, ConfigurationFault
from ccm.settings import CertKey, Settings
from ccm.supervisor.https.certificates import self_signed
from ccm.supervisor.https.ciphers import SUITES
from tests.https.pki import Authority, Signed, trusting_anybody
from tests.https.reviewer import Reviewer
from tests.https.served import Site, serving

CA = Authority("servers")
PAIR = "cloud-controller-manager"


def files(signed: Signed, directory: Path, name: str = "server") -> dict[str, str]:
    cert_file, key_file = signed.write(directory, name)
    return {"tls_cert_file": str(cert_file), "tls_private_key_file": str(key_file)}


async def test_without_flags_the_certificate_is_made_here_for_this_host(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        shown = await site.shown()
        again = await site.shown()
    assert shown == again
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert (shown.not_valid_after_utc - shown.not_valid_before_utc).days == 365
    assert site.server.certificate_ends_at() == shown.not_valid_after_utc.timestamp()


def test_a_made_certificate_is_one_that_a_client_can_pin() -> None:
    pair = self_signed()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair.put_into(server)
    client = ssl.create_default_context(cadata=pair.certificate.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert sides[0].getpeercert()


@pytest.mark.parametrize(
    "depth", [pytest.param(1, id="OP3-the-name-of-the-pair"), pytest.param(2, id="made-with-it")]
)
async def test_a_directory_gets_a_pair_that_the_next_start_finds(
    reviewer: Reviewer, tmp_path: Path, depth: int
) -> None:
    directory = tmp_path.joinpath(*"ab"[:depth])
    async with serving(reviewer, cert_dir=str(directory)) as site:
        first = await site.shown()
    async with serving(reviewer, cert_dir=str(directory)) as site:
        assert await site.shown() == first
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {
        f"{PAIR}.crt": 0o644,
        f"{PAIR}.key": 0o600,
    }


@pytest.mark.parametrize("which", ["crt", "key"])
async def test_half_a_pair_in_the_directory_is_a_fault(
    reviewer: Reviewer, tmp_path: Path, which: str
) -> None:
    (tmp_path / f"{PAIR}.{which}").write_text("something")
    with pytest.raises(ConfigurationFault, match=r"--cert-dir: .* both, or none"):
        async with serving(reviewer, cert_dir=str(tmp_path)):
            pass


async def test_a_chain_is_shown_as_a_whole(reviewer: Reviewer, tmp_path: Path) -> None:
    middle = Authority("middle", issuer=CA)
    signed = middle.server("localhost")
    flags = files(signed, tmp_path)
    Path(flags["tls_cert_file"]).write_bytes(signed.pem + middle.pem)
    async with serving(reviewer, **flags) as site:
        (tmp_path / "ca.crt").write_bytes(CA.pem)
        client = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        assert (await site.get("/healthz", tls=client)).status == 200


@pytest.fixture
async def by_name(reviewer: Reviewer, tmp_path: Path) -> AsyncIterator[tuple[Site, dict[int, str]]]:
    """A site with a default certificate and others for names, and their serial numbers."""
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
    flags = files(pairs["default"], tmp_path)
    async with serving(reviewer, tls_sni_cert_key=tuple(sni), **flags) as site:
        yield site, {signed.serial(): name for name, signed in pairs.items()}


@pytest.mark.parametrize(
    ("asked", "shown"),
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
async def test_the_name_that_a_client_asks_for_picks_the_certificate(
    by_name: tuple[Site, dict[int, str]], asked: str | None, shown: str
) -> None:
    site, names = by_name
    assert names[(await site.shown(asked)).serial_number] == shown


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
        pytest.param({"client_ca_file": "garbage"}, id="client-CA"),
        pytest.param({"client_ca_file": "/nowhere/ca"}, id="client-CA-gone"),
        pytest.param({"requestheader_client_ca_file": "garbage"}, id="proxy-CA"),
        pytest.param({"tls_cipher_suites": ("TLS_NONSENSE",)}, id="suite"),
        pytest.param({"authentication_kubeconfig": "/nowhere/config"}, id="kubeconfig"),
        pytest.param({"authorization_kubeconfig": "/nowhere/config"}, id="other-kubeconfig"),
    ],
)
async def test_what_cannot_be_used_is_named_at_the_start(
    reviewer: Reviewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    CA.server("a").write(tmp_path, "a")
    CA.server("b").write(tmp_path, "b")
    Path("garbage").write_text("-----BEGIN NONSENSE-----")
    flag = next(iter(broken)).replace("_", "-")
    with pytest.raises(ConfigurationFault, match=f"^--{flag}: ") as fault:
        async with serving(reviewer, **broken):
            pass
    assert "\n" not in str(fault.value)


async def test_a_key_with_a_password_is_refused_without_asking(
    reviewer: Reviewer, tmp_path: Path
) -> None:
    flags = files(CA.server("localhost"), tmp_path)
    signed = CA.server("localhost")
    locked = signed.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    Path(flags["tls_cert_file"]).write_bytes(signed.pem)
    Path(flags["tls_private_key_file"]).write_bytes(locked)
    with pytest.raises(ConfigurationFault, match="encrypted"):
        async with serving(reviewer, **flags):
            pass


def at_most(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = trusting_anybody()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize(
    ("flag", "version", "is_taken"),
    [
        ("", ssl.TLSVersion.TLSv1_2, True),
        ("", ssl.TLSVersion.TLSv1_1, False),
        ("VersionTLS12", ssl.TLSVersion.TLSv1_2, True),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_2, False),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_3, True),
    ],
)
async def test_versions_below_the_flag_are_not_spoken(
    reviewer: Reviewer, flag: str, version: ssl.TLSVersion, is_taken: bool
) -> None:
    async with serving(reviewer, tls_min_version=flag) as site:
        try:
            await site.shown(tls=at_most(version))
        except OSError:
            assert not is_taken
        else:
            assert is_taken


async def test_an_old_version_may_be_asked_for(reviewer: Reviewer) -> None:
    async with serving(reviewer, tls_min_version="VersionTLS10") as site:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert site.server._tls
            assert site.server._tls.context.minimum_version is ssl.TLSVersion.TLSv1


async def test_only_the_suites_of_the_flag_are_spoken(reviewer: Reviewer) -> None:
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    async with serving(reviewer, tls_cipher_suites=suites) as site:
        await site.shown(tls=offering("ECDHE-ECDSA-AES256-GCM-SHA384"))
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            await site.shown(tls=offering("ECDHE-ECDSA-AES128-GCM-SHA256"))


def offering(suite: str) -> ssl.SSLContext:
    context = at_most(ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(suite)
    return context


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_is_one_that_openssl_knows(suite: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(SUITES[suite])
    assert SUITES[suite] in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize("curves", [(23,), (24,), (29,), (29, 23), (4588,)])
async def test_curves_are_done_as_far_as_python_can(
    reviewer: Reviewer, curves: tuple[int, ...]
) -> None:
    async with serving(reviewer, tls_curve_preferences=curves) as site:
        assert (await site.get("/healthz")).status == 200


async def test_a_port_in_use_is_said_in_one_line_with_the_flag(reviewer: Reviewer) -> None:
    async with serving(reviewer) as site:
        settings = Settings(master=reviewer.url, secure_port=site.port, bind_address="127.0.0.1")
        with pytest.raises(
            CannotListen, match=r"^--secure-port: .*127.0.0.1 port \d+: .*in use"
        ) as why:
            await type(site.server)(settings).start()
    assert "\n" not in str(why.value)


async def test_an_address_that_is_not_ours_is_said_so(reviewer: Reviewer) -> None:
    settings = Settings(master=reviewer.url, bind_address="192.0.2.1")
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1"):
        async with serving(reviewer) as site:
            await type(site.server)(settings).start()


async def test_no_key_is_left_in_a_file(
    reviewer: Reviewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    async with serving(reviewer) as site:
        await site.shown()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= before
