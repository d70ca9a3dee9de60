"""Certificates that change while many clients are there: not one of them notices."""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from ccm.settings import CertKey
from tests.https.pki import Authority, Signed, trusting_anybody
from tests.https.reviewer import Reviewer
from tests.https.served import Place, eventually, serving
from tests.unit.waiting import until

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


class Load:
    """Clients that ask without a pause, some on connections that stay, some on new ones."""

    def __init__(self, site: Place) -> None:
        self._site = site
        self.answered = 0

    async def goes_on(self) -> None:
        """Until many more were answered."""
        enough = self.answered + 50
        await until(lambda: self.answered > enough)

    async def run(self, is_staying: bool) -> None:
        """Raises at the first request that is not answered."""
        tls = trusting_anybody()
        connector = aiohttp.TCPConnector(ssl=tls, force_close=not is_staying)
        url = f"https://127.0.0.1:{self._site.port}/healthz"
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                async with session.get(url, timeout=aiohttp.ClientTimeout(total=10)) as answer:
                    assert await answer.text() in ("page", "ok")
                self.answered += 1


@asynccontextmanager
async def under_load(site: Place) -> AsyncIterator[Load]:
    load = Load(site)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(load.run(number % 2 == 0)) for number in range(CLIENTS)]
        yield load
        for task in tasks:
            task.cancel()


async def test_a_rotation_under_load_fails_no_request(reviewer: Reviewer, tmp_path: Path) -> None:
    cert_file, key_file = replace_pair(CA.server("localhost"), tmp_path)
    flags = {"tls_cert_file": str(cert_file), "tls_private_key_file": str(key_file)}
    async with serving(reviewer, **flags) as site, under_load(site) as load:
        for _ in range(5):
            fresh = CA.server("localhost")
            replace_pair(fresh, tmp_path)
            await shown(site, fresh)
            await load.goes_on()
    assert load.answered > 250


async def test_the_files_may_change_one_after_the_other(
    reviewer: Reviewer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = CA.server("localhost"), CA.server("localhost")
    cert_file, key_file = before.write(tmp_path, "tls")
    flags = {"tls_cert_file": str(cert_file), "tls_private_key_file": str(key_file)}
    async with serving(reviewer, **flags) as site, under_load(site) as load:
        cert_file.write_bytes(after.pem)  # and the key is still the old one
        await until(lambda: "certificates not taken up" in caplog.text)
        await load.goes_on()
        assert (await site.shown()).serial_number == before.serial()
        key_file.write_bytes(after.key_pem)
        await shown(site, after)
    complaints = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(complaints) == 1, "once, and not at every look"


async def test_a_file_that_vanishes_changes_nothing(
    reviewer: Reviewer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = CA.server("localhost")
    cert_file, key_file = pair.write(tmp_path, "tls")
    flags = {"tls_cert_file": str(cert_file), "tls_private_key_file": str(key_file)}
    async with serving(reviewer, **flags) as site:
        key_file.unlink()
        cert_file.write_text("")
        await until(lambda: "certificates not taken up" in caplog.text)
        assert (await site.shown()).serial_number == pair.serial()


async def test_a_pair_for_a_name_changes_too(reviewer: Reviewer, tmp_path: Path) -> None:
    before, after = CA.server("a.example.com"), CA.server("b.example.com")
    cert_file, key_file = before.write(tmp_path, "tls")
    sni = (CertKey(str(cert_file), str(key_file)),)
    async with serving(reviewer, tls_sni_cert_key=sni) as site:
        default = await site.shown()
        assert (await site.shown("a.example.com")).serial_number == before.serial()
        after.write(tmp_path, "tls")
        await shown(site, after, "b.example.com")
        assert await site.shown("a.example.com") == default


async def test_client_cas_change_under_load(reviewer: Reviewer, tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(old.pem)
    both = [ca.client("admin", "system:masters").present(tmp_path) for ca in (old, new)]
    async with serving(reviewer, client_ca_file=str(ca_file)) as site, under_load(site) as load:
        assert await may(site, both[0])
        ca_file.write_bytes(old.pem + new.pem)
        await eventually(lambda: may(site, both[1]))
        assert await may(site, both[0])
        os.replace(written(new, tmp_path), ca_file)
        await eventually(lambda: may(site, both[0]), lambda may: not may)
        assert await may(site, both[1])
        await load.goes_on()


async def test_a_certificate_made_here_is_made_anew_before_it_ends(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(reviewer) as site:
        before = await site.shown()
        renew = before.not_valid_after_utc - before.not_valid_before_utc
        monkeypatch.setattr("ccm.supervisor.https.tls.RENEW_BEFORE", renew)
        await eventually(site.shown, lambda shown: shown != before)


async def shown(site: Place, signed: Signed, name: str = "localhost") -> None:
    """Until the server shows this certificate."""
    await eventually(lambda: site.shown(name), lambda found: found.serial_number == signed.serial())


async def may(site: Place, client: ssl.SSLContext) -> bool:
    try:
        return (await site.get("/page", tls=client)).status == 200
    except aiohttp.ClientError:
        return False


def written(ca: Authority, directory: Path) -> Path:
    path = directory / "next.crt"
    path.write_bytes(ca.pem)
    return path
