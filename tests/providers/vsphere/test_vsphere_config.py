"""The cloud-config of upstream's controller in its two forms, and what is refused."""

from pathlib import Path

import pytest
from fakepve.certs import make_cert

from ccm.errors import ConfigurationFaults
from ccm.model.cloud import read_network
from ccm.providers.vsphere import config
from ccm.providers.vsphere.config import AddressRules, VCenter, VsphereConfig, read_config

YAML = """
global:
  port: 8443
  secretName: vsphere
  secretNamespace: kube-system
  caFile: {ca}
  soapRoundtripCount: 3
vcenter:
  east:
    server: vc-east.example.com
    datacenters: [DC0, /folder/DC1]
    ipFamily: [ipv6, ipv4]
  west:
    server: 10.0.0.2
    port: 443
    user: ccm@vsphere.local
    password: 'a#b;c"d'
labels:
  region: k8s-region
  zone: k8s-zone
nodes:
  internalNetworkSubnetCidr: 10.0.0.0/8
  externalNetworkSubnetCidr: 192.0.2.0/24,2001:db8::/32
  internalVmNetworkName: Internal
  externalVmNetworkName: DMZ
  excludeInternalNetworkSubnetCidr: 10.9.0.0/16
"""

INI = """
[Global]
port = 8443
secret-name = "vsphere"
secret-namespace = "kube-system"
ca-file = {ca}
soap-roundtrip-count = 3 # no effect

[VirtualCenter "east"]
server = vc-east.example.com
datacenters = "DC0, /folder/DC1"
ip-family = "ipv6,ipv4"

[VirtualCenter "10.0.0.2"]
port = 443
user = "ccm@vsphere.local"
password = "a#b;c\\"d"

[Labels]
region = k8s-region
zone = k8s-zone

[Nodes]
internal-network-subnet-cidr = 10.0.0.0/8
external-network-subnet-cidr = "192.0.2.0/24,2001:db8::/32"
internal-vm-network-name = "Internal"
external-vm-network-name = DMZ
exclude-internal-network-subnet-cidr = 10.9.0.0/16
"""


def read(content: str) -> VsphereConfig:
    return read_config(content.encode(), "vsphere.conf")


def faults(content: str) -> list[str]:
    with pytest.raises(ConfigurationFaults) as raised:
        read(content)
    return [str(one).removeprefix("vsphere.conf ") for one in raised.value.faults]


@pytest.mark.parametrize(("content", "west"), [(YAML, "west"), (INI, "10.0.0.2")])
def test_both_forms_say_the_same(tmp_path: Path, content: str, west: str) -> None:
    """VS57: quotes and comments as gcfg reads them."""
    ca, _, _ = make_cert(str(tmp_path), "vc-east.example.com")
    found = read(content.replace("{ca}", str(ca)))
    networks = [read_network(one) for one in ("192.0.2.0/24", "2001:db8::/32")]
    assert found == VsphereConfig(
        vcenters=(
            VCenter(
                name="east",
                server="vc-east.example.com",
                port=8443,
                secret_name="vsphere",
                secret_namespace="kube-system",
                ca_file=str(ca),
                datacenters=("DC0", "/folder/DC1"),
                families=("ipv6", "ipv4"),
            ),
            VCenter(
                name=west,
                server="10.0.0.2",
                user="ccm@vsphere.local",
                password='a#b;c"d',
                ca_file=str(ca),
            ),
        ),
        region_category="k8s-region",
        zone_category="k8s-zone",
        internal=AddressRules(
            tuple(one for one in [read_network("10.0.0.0/8")] if one),
            "Internal",
            tuple(one for one in [read_network("10.9.0.0/16")] if one),
        ),
        external=AddressRules(tuple(one for one in networks if one), "DMZ"),
    )
    assert "a#b" not in repr(found)


def test_one_vcenter_may_stand_in_the_global_section() -> None:
    found = read("[Global]\nserver = 10.0.0.1\nuser = u\npassword = p\ndatacenters = DC0\n")
    assert found.vcenters == (VCenter("10.0.0.1", "10.0.0.1", 443, "u", "p", datacenters=("DC0",)),)
    assert found.vcenters[0].url == "https://10.0.0.1:443"
    six = read("global: {server: 'fd00::1', user: u, password: 123}")
    assert (six.vcenters[0].url, six.vcenters[0].password) == ("https://[fd00::1]:443", "123")


def test_sections_of_one_name_are_merged_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """As upstream's reader merges them; the last of two values counts."""
    found = read(
        "vcenter: {a: {server: one}}\nglobal: {user: u}\nvcenter: {b: {server: two}}\n"
        "global: {password: p, port: 1}\nlabels: {region: r, zone: y, zone: z}"
    )
    assert [(one.server, one.user, one.port) for one in found.vcenters] == [
        ("one", "u", 1),
        ("two", "u", 1),
    ]
    assert (found.region_category, found.zone_category) == ("r", "z")
    reported = [(vars(one)["key"], vars(one)["line"], vars(one)["first"]) for one in caplog.records]
    assert reported == [("vcenter", 3, 1), ("global", 4, 2), ("zone", 5, 5)]


def test_credentials_may_be_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vcenter = "vcenter: {a: {server: vc}}\n"
    assert any("has no credentials" in one for one in faults(vcenter))
    given = read(f"{vcenter}global: {{secretsDirectory: /somewhere}}")
    assert given.vcenters[0].secrets_directory == "/somewhere"
    monkeypatch.setattr(config, "DEFAULT_SECRETS", str(tmp_path))
    assert read(vcenter).vcenters[0].secrets_directory == str(tmp_path)


LOGIN = "user: u, password: p"


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        # VS56
        (f"vcenter: {{a: {{server: vc, {LOGIN}, Port: 1}}}}", "vcenter a Port: is not a key"),
        (
            "[Global]\nserver = vc\nuser = u\npassword = p\nzone = z\n",
            ":5 [Global] zone: is not a key",
        ),
        (f"vcenter: {{a: {{server: vc, {LOGIN}}}}}\nsecret: {{}}", "secret: is not a key"),
        # VS48
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}}}}}\nlabels: {{zone: z}}",
            "labels: has only one of region and zone; name the tag categories of both",
        ),
        (f"vcenter: {{a: {{{LOGIN}}}}}", ":1 vcenter a server: is missing; give a host name or"),
        (f"vcenter: {{a: {{server: 'https://vc/sdk', {LOGIN}}}}}", "a server: is 'https://vc/sdk'"),
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}, insecureFlag: true}}}}",
            "vcenter a insecureFlag: is not supported: any server that answers would get the"
            " password",
        ),
        (
            "[Global]\nserver = vc\nuser = u\npassword = p\ninsecure-flag = 1\n",
            ":5 [Global] insecure-flag: is not supported",
        ),
        (f"vcenter: {{a: {{server: vc, {LOGIN}, caFile: /no}}}}", "caFile: is '/no', which"),
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}, thumbprint: AB}}}}",
            "thumbprint: is 'AB'; give SHA-2",
        ),
        (f"vcenter: {{a: {{server: vc, {LOGIN}, ipFamily: [ipv5]}}}}", "ipFamily: is 'ipv5'; use"),
        (f"vcenter: {{a: {{server: vc, {LOGIN}, port: 70000}}}}", "port: is '70000'; give a num"),
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}, datacenters: {{a: b}}}}}}",
            "datacenters: is not a list",
        ),
        (f"vcenter: {{a: {{server: vc, {LOGIN}, secretName: s}}}}", "is one half of a Secret"),
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}}}, b: {{server: vc, {LOGIN}}}}}",
            "vcenter: has vc:443 twice; remove one of them",
        ),
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}}}}}\nnodes: {{internalNetworkSubnetCidr: x}}",
            "nodes internalNetworkSubnetCidr: is 'x'; give a network as 192.0.2.0/24",
        ),
        (
            f"vcenter: {{a: {{server: vc, {LOGIN}}}}}\nloadBalancer: {{size: SMALL}}",
            "loadBalancer: is not supported: NSX-T; remove it, and leave load balancers and",
        ),
        (
            "global: {secretName: s, secretNamespace: n, secretsDirectory: /d, server: vc}",
            "global secretsDirectory: stands beside a Secret",
        ),
        ("", "vcenter: is missing"),
        (
            '[Global]\nuser = u\npassword = p\n[VirtualCenter "vc:9443"]\n',
            ':4 [VirtualCenter "vc:9443"]: is not an address; give a host name or',
        ),
        ("- a", ":1: is not a mapping; start it with global:"),
        ("a: [", ":1: is not YAML; close each bracket"),
        ("vcenter: [a]", ":1 vcenter: is not a mapping"),
    ],
)
def test_what_is_wrong_is_reported(content: str, reported: str) -> None:
    """VS48, VS56."""
    found = faults(content)
    assert any(reported in one for one in found), found
