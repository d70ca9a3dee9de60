"""What `ccm-supervisor check` says where Keystone cannot be asked; this needs no OpenStack."""

from pathlib import Path

import pytest
from fakepve.certs import make_cert

from tests.providers.proxmox.served import Served
from tests.providers.started import checked

LOGIN = "application-credential-id = a\napplication-credential-secret = b\n"


def config_of(url: str, more: str = "") -> str:
    floating = "[LoadBalancer]\nfloating-network-id = 0b1c2d3e-0000-4000-8000-000000000001\n"
    return f"[Global]\nauth-url = {url}/v3\n{LOGIN}{more}{floating}"


async def test_it_tells_of_the_way_there_and_of_nothing_else(tmp_path: Path) -> None:
    """The Service that is asked about is one that could be."""
    (found,) = await checked("openstack", config_of("http://127.0.0.1:1"), tmp_path)
    assert (found.state, "ConnectionRefusedError" in found.message) == ("failed", True), found


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "the certificate is not trusted: "),
        ("ca-file = {other}\n", "the certificate is not trusted: "),
        ("ca-file = /nowhere\n", "[Global] ca-file is '/nowhere', which cannot be read: No such"),
        ("ca-file = {text}\n", "which holds no certificate in PEM"),
        ("cert-file = {other}\nkey-file = /nowhere\n", "[Global] key-file cannot be read: No such"),
    ],
)
async def test_it_names_the_key_that_says_who_is_believed(
    tmp_path: Path, more: str, words: str
) -> None:
    other, _, _ = make_cert(str(tmp_path), "other")
    text = tmp_path / "text"
    text.write_text("none")
    folder = tmp_path / "keystone"
    with Served(folder).running() as server:
        given = config_of(server.url, more.format(other=other, text=text))
        (found,) = await checked("openstack", given, tmp_path)
    assert (found.state, words in found.message) == ("failed", True), found
    assert "[Global] " in found.message
