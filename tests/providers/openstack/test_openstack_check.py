"""What `ccm-supervisor check` says where Keystone cannot be asked; this needs no OpenStack."""

from pathlib import Path

import pytest
from fakepve.certs import make_cert

from ccm.errors import ConfigurationFaults
from ccm.providers.openstack.config import read_config
from tests.providers.proxmox.served import Served
from tests.providers.started import checked

LOGIN = "application-credential-id = a\napplication-credential-secret = b\n"


def config_of(url: str, more: str = "") -> str:
    floating = "[LoadBalancer]\nfloating-network-id = 0b1c2d3e-0000-4000-8000-000000000001\n"
    return f"[Global]\nauth-url = {url}/v3\n{LOGIN}{more}{floating}"


async def test_it_tells_of_the_way_there_and_of_nothing_else(tmp_path: Path) -> None:
    """The Service that is asked about is one that could be."""
    (found,) = await checked("openstack", config_of("http://127.0.0.1:1"), tmp_path)
    assert (found.state, "nothing listens" in found.message) == ("failed", True), found


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "the certificate is not trusted: "),
        ("ca-file = {other}\n", "the certificate is not trusted: "),
    ],
)
async def test_it_names_the_key_that_says_who_is_trusted(
    tmp_path: Path, more: str, words: str
) -> None:
    other, _, _ = make_cert(str(tmp_path), "other")
    folder = tmp_path / "keystone"
    with Served(folder).running() as server:
        given = config_of(server.url, more.format(other=other))
        (found,) = await checked("openstack", given, tmp_path)
    assert (found.state, words in found.message) == ("failed", True), found
    assert "[Global] " in found.message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("ca-file = /nowhere\n", "[Global] ca-file: is '/nowhere', which cannot be read: No such"),
        ("ca-file = {text}\n", "which holds no certificate in PEM"),
        (
            "cert-file = {other}\nkey-file = /nowhere\n",
            "[Global] key-file: is '/nowhere', which cannot be read: No such",
        ),
    ],
)
def test_a_file_that_no_connection_can_be_made_with_is_a_fault_at_the_start(
    tmp_path: Path, more: str, words: str
) -> None:
    other, _, _ = make_cert(str(tmp_path), "other")
    text = tmp_path / "text"
    text.write_text("none")
    given = config_of("https://127.0.0.1:1", more.format(other=other, text=text))
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(given.encode(), "cloud.conf")
    assert words in str(raised.value)
