"""The --cloud-config file, and what is told about wrong ones."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from ccm.errors import ConfigurationFaults
from ccm.providers.incus.config import (
    BalancerSection,
    IncusConfig,
    NodeSection,
    Remote,
    read_config,
)

SOCKET = "[Remote]\nurl = unix:///run/incus.socket\nproject = k8s\n"
FULL = """
[Remote "north"]
url = https://north.test:8443/
certificate = {file}
key = {file}
server-certificate = {file}
project = k8s
project = more
[Remote "south"]
url = unix:///run/incus.socket
project = k8s
region = lower
[Node]
network = nodes
zone-key = user.zone
zone-group-prefix = zone-
[LoadBalancer]
remote = north
network = public
mode = forward
address-range = 192.0.2.0/24
address-range = 2001:db8::5
health-check = false
health-check-interval = 10
"""


def test_all_keys_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    north = ("https://north.test:8443", *3 * (str(file),), ("k8s", "more"), "north")
    assert read_config(FULL.format(file=file).encode(), "") == IncusConfig(
        {
            "north": Remote(*north),
            "south": Remote("unix:///run/incus.socket", project=("k8s",), region="lower"),
        },
        NodeSection("nodes", "user.zone", "zone-"),
        BalancerSection(
            remote="north",
            project="k8s",
            network="public",
            mode="forward",
            address_range=(ip_network("192.0.2.0/24"), ip_network("2001:db8::5/128")),
            health_check=False,
            health_check_interval=10,
        ),
    )


def test_little_is_enough() -> None:
    config = read_config(SOCKET.encode(), "")
    assert config.remotes[""].region == "local"
    assert (config.balancers.project, config.balancers.network) == ("k8s", "")
    https = SOCKET.replace("unix:///run/incus.socket", "https://10.0.0.5:8443")
    files = f"certificate = {__file__}\nkey = {__file__}\n"
    assert read_config((https + files).encode(), "").remotes[""].region == "10.0.0.5"


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("", "[Remote] url: is missing"),
        ("nothing", "incus.conf:1: is before the first section; start the file with"),
        ("[Remote]\nurl = unix:///x", "[Remote] project: is missing"),
        ('[Remote "a"]\nproject = k8s', '[Remote "a"] url: is missing'),
        ("[Remote]\nurl = http://host", "[Remote] url: is 'http://host'"),
        ("[Remote]\nurl = https://u:p@host", "has a value with credentials"),
        ("[Remote]\nurl = https://host/1.0", "give https://host:8443"),
        ("[Remote]\nurl = https://host\nproject = a", "[Remote] certificate: is missing"),
        ("[Remote]\nurl = https://host\nkey = /nowhere", "is '/nowhere', which cannot be read"),
        ("[Remote]\nurl = unix:///x\nproject = ../other", "[Remote] project: is '../other'"),
        (f"{SOCKET}project = k8s", "[Remote] project: has 'k8s' twice"),
        (f'{SOCKET}[Remote "again"]{SOCKET[8:]}', "project: has 'k8s' twice"),
        (
            f"{SOCKET}proyect = a",
            ":4 [Remote] proyect: is not a key of this file; did you mean project?",
        ),
        (f"{SOCKET}[Remotes]\na = b", ":4 [Remotes]: is not a section"),
        (f'{SOCKET}[Node "x"]\nzone-key = b', ':4 [Node "x"]: is not a section'),
        (f"{SOCKET}[LoadBalancer]\nmode = proxy", "use load-balancer, forward"),
        (f"{SOCKET}[LoadBalancer]\naddress-range = 192.0.2/24", "is '192.0.2/24'"),
        (f"{SOCKET}[LoadBalancer]\nhealth-check = maybe", "give true or false"),
        (f"{SOCKET}[LoadBalancer]\nhealth-check-timeout = 0", "give 1 to"),
        (f"{SOCKET}[LoadBalancer]\nnetwork = a\nremote = b", "[LoadBalancer] remote: is 'b'"),
    ],
)
def test_a_wrong_file_is_reported(content: str, reported: str) -> None:
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(content.encode(), "incus.conf")
    assert reported in str(raised.value)
