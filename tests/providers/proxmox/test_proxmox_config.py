"""The --cloud-config file, and what is told about wrong ones."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from fakepve.certs import make_cert

from ccm.errors import ConfigurationFaults
from ccm.providers.proxmox.config import Cluster, NetworkSection, ProxmoxConfig, read_config

SECRET = "0f0e0d0c-0b0a-4908-8706-050403020100"
LOGIN = f"  token_id: ccm@pve!k8s\n  token_secret: {SECRET}\n"
ONE = f"clusters:\n- region: one\n  url: https://pve1.test:8006/api2/json\n{LOGIN}"
FULL = """
features:
  provider: capmox
  ha_group: false
  force_update_labels: true
  network:
    mode: auto
    ipv6_support_disabled: true
    external_ip_cidrs: 192.0.2.0/24,!192.0.2.128/25
    ip_sort_order: [10.0.0.0/8, 192.0.2.0/24]
clusters:
- region: north
  url: [https://10.0.0.1:8006, https://10.0.0.2:8006/]
  insecure: false
  ca_file: {file}
  token_id_file: {id_file}
  token_secret_file: {secret_file}
"""


def reported(content: str) -> str:
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(content.encode(), "proxmox.yaml")
    assert SECRET not in str(raised.value)
    return str(raised.value)


def test_all_keys_are_read(tmp_path: Path) -> None:
    file, _, _ = make_cert(str(tmp_path), "pve1")
    id_file, secret_file = tmp_path / "id", tmp_path / "secret"
    id_file.write_text("ccm@pve!k8s\n")
    secret_file.write_text(f"{SECRET}\n")
    north = Cluster(
        "north",
        ("https://10.0.0.1:8006", "https://10.0.0.2:8006"),
        file,
        token_id_file=str(id_file),
        token_secret_file=str(secret_file),
    )
    network = NetworkSection(
        "auto",
        has_ipv6=False,
        external=(ip_network("192.0.2.0/24"),),
        excluded=(ip_network("192.0.2.128/25"),),
        order=(ip_network("10.0.0.0/8"), ip_network("192.0.2.0/24")),
    )
    content = FULL.format(file=file, id_file=id_file, secret_file=secret_file).encode()
    assert read_config(content, "") == ProxmoxConfig((north,), network, has_uuid_ids=True)


def test_little_is_enough() -> None:
    config = read_config(ONE.encode(), "")
    assert config.clusters[0].urls == ("https://pve1.test:8006",)
    assert SECRET not in repr(config)
    assert config.network == NetworkSection()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "clusters: is missing"),
        ("clusters: [", ":1: is not YAML; close each bracket"),
        ("[]\n- a: [", ":1: is not a mapping"),
        ("just text", "is not a mapping; start it with clusters:"),
        ("clusters: none", "clusters: is missing"),
        ("clusters: [none]", "clusters 1: is not a mapping"),
        (f"{ONE}regions: a", "regions: is not a key"),
        (f"{ONE}  tokenid: a", "clusters 1 tokenid: is not a key"),
        (ONE.replace("one", '""'), "clusters 1 region: is missing"),
        (ONE.replace("one", "a/b"), ":2 clusters 1 region: is 'a/b'"),
        (ONE.replace("https", "http"), ":3 clusters 1 url: is 'http:"),
        (ONE.replace("pve1", "u:p@pve1"), "clusters 1 url: has a value with credentials"),
        (ONE.replace("https://pve1.test:8006/api2/json", "[1]"), "url: is '1'"),
        (ONE.replace(SECRET, "'a b'"), "token_secret: has not the form"),
        (ONE.replace("ccm@pve!k8s", "ccm@pve"), "token_id: has not the form"),
        (f"{ONE}  token_secret_file: /nowhere", "token_secret: is given twice"),
        (ONE.replace("token_secret", "token_secret_file"), "token_secret_file: cannot be read"),
        (f"{ONE}  username: root@pam", "give token_id and token_secret of a token"),
        (f"{ONE}  ca_file: /nowhere", "ca_file: is '/nowhere', which cannot be read"),
        (f"{ONE}features: {{provider: other}}", "use default, capmox"),
        (f"{ONE}features: {{mode: auto}}", "features mode: is not a key"),
        (f"{ONE}features: {{network: {{mode: dhcp}}}}", "use default, qemu, auto"),
        (f"{ONE}features: {{force_update_labels: 1.5}}", "give true or false"),
        (f"{ONE}features: {{network: {{external_ip_cidrs: 10.0.0.1}}}}", "is '10.0.0.1'"),
    ],
)
def test_a_wrong_file_is_reported(content: str, words: str) -> None:
    assert words in reported(content)


def test_a_region_of_two_clusters_is_refused() -> None:
    """PX27."""
    assert "have region 'one' twice" in reported(ONE + ONE.removeprefix("clusters:\n"))


def test_ha_groups_are_refused() -> None:
    """PX29: a word, and what to do."""
    assert "Proxmox VE 9 has no HA groups" in reported(f"{ONE}features: {{ha_group: true}}")


def test_who_answers_is_always_verified() -> None:
    """PX28: there is no way around it, and a word how to do it."""
    assert "pve-root-ca.pem as ca_file" in reported(f"{ONE}  insecure: true")


def test_all_faults_are_reported_at_once() -> None:
    both = f"{ONE}  x: y\nfeatures: {{z: a, ha_group: true}}"
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(both.encode(), "")
    assert len(raised.value.faults) == 3
