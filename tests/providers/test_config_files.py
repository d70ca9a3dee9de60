"""Files as people have them: what each is read as, or what is wrong in it."""

from collections.abc import Callable
from ipaddress import ip_network
from operator import attrgetter
from pathlib import Path

import pytest

from ccm.errors import ConfigurationFaults
from ccm.providers.aws import config as aws
from ccm.providers.incus import config as incus
from ccm.providers.openstack import config as openstack
from ccm.providers.proxmox import config as proxmox
from ccm.providers.vsphere import config as vsphere

FILES = Path(__file__).with_name("files")
READERS: dict[str, Callable[[bytes, str], object]] = {
    "aws": aws.read_config,
    "incus": incus.read_config,
    "os": openstack.read_config,
    "pve": proxmox.read_config,
    "px": proxmox.read_config,
    "vs": vsphere.read_config,
}


def read(name: str) -> object:
    return READERS[name.partition("-")[0]]((FILES / name).read_bytes(), name)


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("aws-badregion.conf", "region", "eu-centrall-1"),
        ("os-crlf-comments.conf", "credentials.auth_url", "https://iam.cloud.example:443/v3/"),
        ("os-crlf-comments.conf", "credentials.password", "ab$c"),
        ("os-crlf-comments.conf", "credentials.domain_id", "default"),
        ("os-crlf-comments.conf", "balancers.create_monitor", True),
        ("os-crlf-comments.conf", "balancers.monitor_delay", 60.0),
        ("os-monitor-timeout-equals-delay.conf", "balancers.monitor_timeout", 10.0),
        ("os-tls-insecure-blank.conf", "credentials.tls_insecure", False),
        ("os-tls-insecure-empty.conf", "credentials.tls_insecure", False),
        ("os-trust-of-magnum.conf", "credentials.trust_id", "f9e8d7c6b5a493827160f5e4d3c2b1a0"),
        ("os-trust-of-magnum.conf", "credentials.password", "made-by-heat"),
        ("os-values-that-upstream-starts-with.conf", "balancers.monitor_max_retries", 1),
        ("os-values-that-upstream-starts-with.conf", "balancers.container_store", "barbican"),
        ("os-values-that-upstream-starts-with.conf", "metadata.request_timeout", 60.0),
        ("px-cidrs-as-documented.yaml", "network.external.1", ip_network("2001:db8:1::/64")),
        ("px-cidrs-as-documented.yaml", "network.order.0", ip_network("192.0.2.0/24")),
        ("px-digits.yaml", "clusters.0.region", "1"),
        ("px-flat.yaml", "network.mode", "auto"),
        ("px-flat.yaml", "network.excluded.0", ip_network("203.0.113.0/24")),
        ("px-flat.yaml", "clusters.0.urls.0", "https://pve.example:8006"),
        ("px-yes.yaml", "clusters.0.region", "no"),
        ("vs-bom.yaml", "vcenters.0.password", "s3cret"),
        ("vs-bom.yaml", "vcenters.0.datacenters", ("DC 1", "/folder/DC2")),
        ("vs-empty-values-in-entry.yaml", "vcenters.0.user", "svc@vsphere.example"),
        ("vs-empty-values-in-entry.yaml", "vcenters.0.password", "s3cret"),
        ("vs-empty-values-in-entry.yaml", "vcenters.0.port", 8443),
        ("vs-empty-values-in-entry.yaml", "vcenters.0.datacenters", ("DC1",)),
        ("vs-empty-values-in-entry.yaml", "vcenters.0.families", ("ipv6",)),
        (
            "vs-empty-values-in-entry.yaml",
            "vcenters.0.thumbprint",
            "aabbccddeeff00112233445566778899aabbccdd",
        ),
        ("vs-empty-values-in-entry.yaml", "zone_category", ""),
        ("vs-helm-chart.yaml", "vcenters.0.datacenters", ("DC 1", "/folder/DC2")),
        ("vs-helm-chart.yaml", "region_category", "site"),
        ("vs-openshift.yaml", "vcenters.0.secret_name", "vsphere-creds"),
        ("vs-openshift.yaml", "vcenters.0.datacenters", ("DC1",)),
        ("vs-openshift.yaml", "zone_category", "openshift-zone"),
        ("vs-password-of-digits.yaml", "vcenters.0.password", "0123456"),
        ("vs-in-tree-leftovers.conf", "vcenters.0.server", "192.0.2.10"),
        ("vs-in-tree-leftovers.conf", "vcenters.0.datacenters", ("DC1",)),
        ("vs-ini-comments.conf", "vcenters.0.password", 'a"b#c;d\\e'),
        ("vs-ini-comments.conf", "vcenters.0.user", "CORP\\svc-k8s"),
        ("vs-ini-comments.conf", "vcenters.0.datacenters", ("DC 1", "/folder/DC2")),
        ("vs-ini-comments.conf", "vcenters.0.port", 443),
        ("vs-ini-comments.conf", "vcenters.1.server", "vc2.example"),
        ("vs-ini-comments.conf", "vcenters.1.port", 9443),
        ("vs-ini-empty-section.conf", "vcenters.0.server", "192.0.2.10"),
        ("vs-ini-empty-section.conf", "vcenters.0.datacenters", ("DC1",)),
        ("vs-ini-empty-section.conf", "vcenters.0.user", "svc@vsphere.example"),
        ("vs-ini-ipv6.conf", "vcenters.0.url", "https://[2001:db8:0:810::68]:443"),
        ("vs-ini-ipv6.conf", "vcenters.0.families", ("ipv6",)),
        ("vs-ini-ipv6.conf", "internal.network_name", "Pri1-DPortGroup"),
    ],
)
def test_a_file_is_read_as_its_controller_reads_it(
    name: str, attribute: str, value: object
) -> None:
    found = read(name)
    for one in attribute.split("."):
        found = found[int(one)] if one.isdecimal() else attrgetter(one)(found)  # type: ignore[index]
    assert found == value


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        (
            "incus-remote-without-keys.conf",
            'incus-remote-without-keys.conf:1 [Remote "east"] url: is missing; '
            "give https://host:8443 or unix:///path",
        ),
        (
            "os-ca.conf",
            "os-ca.conf:5 [Global] ca-file: is '/nonexistent/ca.pem', which cannot be read: "
            "No such file or directory; give the file of a certificate",
        ),
        (
            "os-wrongkey.conf",
            "os-wrongkey.conf:2: is not a section or a key; did you mean auth-url? "
            "write it as key = value; a key has letters, digits and dashes",
        ),
        ("pve-badyaml.yaml", "pve-badyaml.yaml:6: is not YAML; fix the indent of this line"),
        (
            "px-clusters-block-twice.yaml",
            "px-clusters-block-twice.yaml:3 clusters: "
            "stands twice, in line 1 too; keep one of them",
        ),
        (
            "vs-env-unexpanded.yaml",
            "vs-env-unexpanded.yaml:7 vcenter team server: is '${VC_ADDRESS}'; "
            "give a host name or an IP address; the port is a key of its own",
        ),
        (
            "vs-server-with-port.yaml",
            "vs-server-with-port.yaml:4 vcenter main server: is 'vc.example:9443'; "
            "give a host name or an IP address; the port is a key of its own",
        ),
        (
            "vs-ini-backslash-in-quotes.conf",
            "vs-ini-backslash-in-quotes.conf:2: has a backslash inside quotes; "
            "write \\\\ for each backslash",
        ),
    ],
)
def test_what_is_wrong_has_file_line_key_and_remedy(name: str, reported: str) -> None:
    with pytest.raises(ConfigurationFaults) as raised:
        read(name)
    assert reported in str(raised.value).splitlines()


def test_each_file_is_read() -> None:
    """A file that nobody expects anything of would be lost in silence."""
    source = Path(__file__).read_text()
    assert [file.name for file in FILES.iterdir() if f'"{file.name}"' not in source] == []
