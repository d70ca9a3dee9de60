"""Certificates that change under load: no request fails."""

import asyncio
import logging
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from ccm.settings import CertKey
from ccm.supervisor.https import client_ca
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import QUICK, ServerAddress, eventually, serving
from tests.support.deadlines import timeout
from tests.support.pki import Authority, Signed, trusting_anybody
from tests.support.waiting import until

CA = Authority("servers")
CLIENTS = 8


def replace_pair(signed: Signed, directory: Path) -> tuple[Path, Path]:
    """As cert-manager and kubelets do: both files change in one step, behind a link."""
    fresh = directory / f"v{signed.serial()}"
    fresh.mkdir()
    signed.write(fresh, "tls")
    link = directory / "now.new"
    link.symlink_to(fresh)
    link.replace(directory / "now")
    return directory / "now" / "tls.crt", directory / "now" / "tls.key"


def renew(file: Path, content: bytes) -> None:
    """All at once, so that nobody reads a part of it."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(file)


class Load:
    """Clients that send requests without a pause, on connections kept alive and on new ones."""

    def __init__(self, server: ServerAddress) -> None:
        self._site = server
        self.answered = 0

    async def goes_on(self) -> None:
        """Until many more were answered."""
        enough = self.answered + 50
        await until(lambda: self.answered > enough)

    async def run(self, is_kept_alive: bool) -> None:
        """Raises at the first request that is not answered."""
        tls = trusting_anybody()
        connector = aiohttp.TCPConnector(ssl=tls, force_close=not is_kept_alive)
        url = f"https://127.0.0.1:{self._site.port}/healthz"
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                limit = aiohttp.ClientTimeout(total=timeout())
                async with session.get(url, timeout=limit) as answer:
                    assert await answer.text() in ("page", "ok")
                self.answered += 1


@asynccontextmanager
async def under_load(server: ServerAddress) -> AsyncIterator[Load]:
    load = Load(server)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(load.run(number % 2 == 0)) for number in range(CLIENTS)]
        yield load
        for task in tasks:
            task.cancel()


async def test_the_files_may_change_one_after_the_other_and_vanish(
    reviews: ReviewApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = CA.server("localhost"), CA.server("localhost")
    flags = before.flags(tmp_path)
    cert_file, key_file = map(Path, flags.values())
    async with serving(reviews, **flags) as server, under_load(server) as load:
        renew(cert_file, after.pem)  # and the key is still the old one
        await until(lambda: "certificates not reloaded" in caplog.text)
        await load.goes_on()
        assert (await server.certificate()).serial_number == before.serial()
        renew(key_file, after.key_pem)
        await until_served(server, after)
        complaints = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(complaints) == 1, "once, and not at every read"
        cert_file.write_text("")
        key_file.unlink()
        await until(lambda: caplog.text.count("certificates not reloaded") > 1)
        assert (await server.certificate()).serial_number == after.serial()


def of_version_4(pem: bytes) -> bytes:
    """A certificate that the library has an error of its own for."""
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    return ssl.DER_cert_to_PEM_cert(der.replace(b"\xa0\3\2\1\2", b"\xa0\3\2\1\3", 1)).encode()


@pytest.mark.parametrize("which", ["certificate", "authority"])
@pytest.mark.parametrize("odd", ["version", "pipe", "size"])
async def test_a_file_of_any_content_ends_nothing_and_keeps_no_one_waiting(
    reviews: ReviewApi, tmp_path: Path, caplog: pytest.LogCaptureFixture, which: str, odd: str
) -> None:
    """Its owner need not be root. What was read before is served, and what comes next is, too."""
    before, after = CA.server("localhost"), CA.server("localhost")
    flags = before.flags(tmp_path)
    (authority := tmp_path / "ca.crt").write_bytes(CA.pem)
    changed = authority if which == "authority" else Path(flags["tls_cert_file"])
    async with serving(reviews, client_ca_file=str(authority), **flags) as server:
        changed.unlink()
        if odd == "pipe":
            os.mkfifo(changed)
        elif odd == "size":
            changed.touch()
            os.truncate(changed, 1 << 40)
        else:
            renew(changed, of_version_4(CA.pem))
        complaint = "client CAs not read" if which == "authority" else "certificates not reloaded"
        await until(lambda: complaint in caplog.text)
        assert (await server.certificate()).serial_number == before.serial()
        renew(authority, CA.pem)
        renew(Path(flags["tls_private_key_file"]), after.key_pem)
        renew(Path(flags["tls_cert_file"]), after.pem)
        await until_served(server, after)


async def test_files_that_stay_as_they_are_are_not_parsed_again(
    reviews: ReviewApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An authority's file may have a thousand of them, and all else waits meanwhile."""
    calls = Counter[str]()

    def counted(module: object, name: str) -> None:
        function = getattr(module, name)

        def count(*arguments: object) -> object:
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(module, name, count)

    for parse in ("load_pem_x509_certificate", "load_pem_x509_certificates"):
        counted(x509, parse)
    counted(client_ca, "read_bounded")
    before, after = CA.server("localhost"), CA.server("localhost")
    flags = before.flags(tmp_path)
    (authority := tmp_path / "ca.crt").write_bytes(CA.pem)
    async with serving(reviews, client_ca_file=str(authority), **flags) as server:
        await until(lambda: calls["read_bounded"] > 3)
        seen = calls.copy()
        await until(lambda: calls["read_bounded"] > seen["read_bounded"] + 10)
        assert calls - seen == {"read_bounded": calls["read_bounded"] - seen["read_bounded"]}
        renew(Path(flags["tls_private_key_file"]), after.key_pem)
        renew(Path(flags["tls_cert_file"]), after.pem)
        await until_served(server, after)


async def test_a_pair_for_a_name_changes_too(reviews: ReviewApi, tmp_path: Path) -> None:
    before, after = CA.server("a.example.com"), CA.server("b.example.com")
    cert_file, key_file = before.write(tmp_path, "tls")
    sni = (CertKey(str(cert_file), str(key_file)),)
    async with serving(reviews, tls_sni_cert_key=sni) as server:
        default = await server.certificate()
        assert (await server.certificate("a.example.com")).serial_number == before.serial()
        after.write(tmp_path, "tls")
        await until_served(server, after, "b.example.com")
        assert await server.certificate("a.example.com") == default


async def test_client_cas_change_under_load(reviews: ReviewApi, tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(old.pem)
    both = [ca.client("admin", "system:masters").present(tmp_path) for ca in (old, new)]
    async with (
        serving(reviews, client_ca_file=str(ca_file)) as server,
        under_load(server) as load,
    ):
        assert await is_allowed(server, both[0])
        ca_file.write_bytes(old.pem + new.pem)
        await eventually(lambda: is_allowed(server, both[1]))
        assert await is_allowed(server, both[0])
        (tmp_path / "next.crt").write_bytes(new.pem)
        os.replace(tmp_path / "next.crt", ca_file)
        await eventually(lambda: is_allowed(server, both[0]), lambda it: not it)
        assert await is_allowed(server, both[1])
        await load.goes_on()


async def test_a_self_signed_certificate_is_renewed_before_it_expires(reviews: ReviewApi) -> None:
    sooner_than_it_lasts = replace(QUICK, renew_before=timedelta(days=3650))
    async with serving(reviews, sooner_than_it_lasts) as server:
        before = await server.certificate()
        await eventually(server.certificate, lambda it: it != before)


async def until_served(server: ServerAddress, signed: Signed, name: str = "localhost") -> None:
    """Wait for the server to use this certificate."""
    await eventually(
        lambda: server.certificate(name), lambda found: found.serial_number == signed.serial()
    )


async def is_allowed(server: ServerAddress, client: ssl.SSLContext) -> bool:
    try:
        return (await server.get("/page", tls=client)).status == 200
    except aiohttp.ClientError:
        return False
