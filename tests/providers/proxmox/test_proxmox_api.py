"""Tokens, certificates and hosts."""

import os
import socket
from pathlib import Path

import pytest
from fakepve.certs import make_cert

from ccm.errors import CloudError, Denied
from ccm.model.cloud import Gone, Instance
from tests.providers.proxmox.conftest import Started, node_with
from tests.providers.proxmox.served import SECRET, TOKEN, Served, config_of

ASKED = node_with("node-1", "", "proxmox://one/100")


async def started(*sections: str) -> Started:
    return await Started(config_of(*sections)).start()


async def test_a_token_in_a_file_may_change(pve: Served, tmp_path: Path) -> None:
    """PX18."""
    pve.add(100, "node-1")
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    section = pve.section(token_secret="", token_secret_file=str(file))
    cloud = await started(section)
    assert isinstance(await cloud.describe_one(ASKED), Instance)
    pve.apitokens[TOKEN] = "another"
    with pytest.raises(Denied, match="401"):
        await cloud.describe_one(ASKED)
    file.write_text("another")
    assert isinstance(await cloud.describe_one(ASKED), Instance)
    for content, problem in {"": "is empty", "two\nlines": "than one line"}.items():
        file.write_text(content)
        with pytest.raises(Denied, match=f"token_secret_file: the file .*{problem}"):
            await cloud.describe_one(ASKED)
    file.unlink()
    with pytest.raises(Denied, match="cannot be read"):
        await cloud.describe_one(ASKED)


async def test_who_answers_is_verified(pve: Served, tmp_path: Path) -> None:
    """PX28: with the wrong certificate, and with none, the token does not leave."""
    wrong, _, _ = make_cert(str(tmp_path), "wrong")
    for file in (wrong, ""):
        cloud = await started(pve.section(ca_file=file))
        with pytest.raises(CloudError, match=r"not trusted: .* as ca_file"):
            await cloud.describe_one(ASKED)
        await cloud.close()
    assert not pve.requests


async def test_a_new_certificate_counts_at_once(pve: Served, tmp_path: Path) -> None:
    """PX28."""
    wrong, _, _ = make_cert(str(tmp_path), "wrong")
    file = tmp_path / "ca.pem"
    file.write_bytes(Path(wrong).read_bytes())
    cloud = await started(pve.section(ca_file=str(file)))
    with pytest.raises(CloudError, match=r"not trusted: .* as ca_file"):
        await cloud.describe_one(ASKED)
    file.write_bytes(Path(pve.certificate).read_bytes())
    os.utime(file, ns=(1, 1))
    assert isinstance(await cloud.describe_one(ASKED), Gone)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def test_the_next_host_answers_for_one_that_is_away(pve: Served) -> None:
    pve.add(100, "node-1")
    away = f"https://127.0.0.1:{free_port()}"
    section = pve.section(url=f"{away},{pve.url}")
    cloud = await started(section)
    for _ in range(2):
        assert isinstance(await cloud.describe_one(ASKED), Instance)
    lists = cloud.operations.count("ListMachines")
    assert lists == 3, "the one that is away is asked last from then on"
    pve.apitokens.clear()
    with pytest.raises(Denied):
        await cloud.describe_one(ASKED)
    assert cloud.operations.count("ListMachines") == 4, "a refusal is an answer"


async def test_all_hosts_away_is_one_error(pve: Served) -> None:
    away = f"https://127.0.0.1:{free_port()}"
    cloud = await started(pve.section(url=f"{away},{away}"))
    with pytest.raises(CloudError, match="ListMachines: "):
        await cloud.describe_one(ASKED)
    assert cloud.operations.count("ListMachines") == 2


async def test_no_secret_is_in_an_error(pve: Served) -> None:
    pve.fault = {"status": 500, "text": "broken"}
    cloud = await started(pve.section())
    with pytest.raises(CloudError) as raised:
        await cloud.describe_one(ASKED)
    assert SECRET not in repr(raised.value)
