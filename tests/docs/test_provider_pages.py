"""What pages of providers say of configuration: examples are taken, tables have every key."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakepve.certs import make_cert

from ccm.cloud.sections import Format, keys_of
from ccm.kube.service_accounts import accounts_of
from ccm.manifests.rbac import subjects
from ccm.providers.azure import config as azure
from ccm.providers.digitalocean import config as digitalocean
from ccm.providers.gce import config as gce
from ccm.providers.openstack import config as openstack
from ccm.providers.proxmox import config as proxmox
from ccm.providers.vsphere import config as vsphere
from ccm.settings import Settings
from tests.docs.pages import DOCS

FILE = re.compile(r"/etc/kubernetes/[a-z/.-]+")


def blocks_of(provider: str) -> list[str]:
    """What is in fences on its page."""
    page = (DOCS / "providers" / f"{provider}.md").read_text()
    return re.findall(r"^```(?:yaml|ini)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def reported_keys(provider: str) -> set[str]:
    """What stands in the first column of the table of its page."""
    page = (DOCS / "providers" / f"{provider}.md").read_text()
    table = page.split("## Configuration")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


def read_digitalocean(content: bytes) -> object:
    return digitalocean.read_config(content, "", {})


@pytest.mark.parametrize(
    ("provider", "read"),
    [
        ("azure", lambda content: azure.read_config(content, "")),
        ("vsphere", lambda content: vsphere.read_config(content, "")),
        ("proxmox", lambda content: proxmox.read_config(content, "")),
        ("digitalocean", read_digitalocean),
        ("gce", lambda content: gce.read_config(content, "")),
        ("openstack", lambda content: openstack.read_config(content, "")),
    ],
)
def test_the_example_is_taken(
    provider: str, read: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All files that it names are in the directory of the configuration, as a Secret has them."""
    certificate, _, _ = make_cert(str(tmp_path), "host")
    token = tmp_path / "token"
    token.write_text("a-token\n")
    example = blocks_of(provider)[0]
    files = FILE.findall(example)
    assert {str(Path(file).parent) for file in files} <= {f"/etc/kubernetes/{provider}"}
    assert f"--cloud-config=/etc/kubernetes/{provider}/" in (
        (DOCS / "providers" / f"{provider}.md").read_text()
    )
    here = FILE.sub(lambda file: certificate if "ca" in Path(file[0]).stem else str(token), example)
    assert read(here.encode())
    assert not caplog.records


def test_the_example_of_several_load_balancers_is_taken() -> None:
    page = (DOCS / "providers" / "azure-services.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    content = blocks_of("azure")[0].replace("/etc/kubernetes/azure/ca.pem", "")
    content = content.replace('"loadBalancerBackendPoolConfigurationType": "nodeIP"', example)
    names = [item.name for item in azure.read_config(content.encode(), "").balancers]
    assert names == ["prod", "fast"]


def test_the_table_of_azure_has_every_key() -> None:
    assert reported_keys("azure") == {*keys_of(azure.AzureConfig, azure.FORM)}


def test_the_table_of_digitalocean_has_every_key() -> None:
    keys = {
        f"[{section}] {key}"
        for section, kind in digitalocean.SECTIONS.items()
        for key in keys_of(kind)
    }
    assert reported_keys("digitalocean") == keys


def test_the_table_of_gce_has_every_key() -> None:
    assert reported_keys("gce") == {*keys_of(gce.GlobalSection), *gce.UNUSED}


def test_the_table_of_proxmox_has_every_key() -> None:
    refused = {"insecure", "username", "password", "ha_group"}
    as_named = Format(str)
    features = {f"features.{key}" for key in {*keys_of(proxmox.FeatureSection, as_named)} - refused}
    network = {f"features.network.{key}" for key in keys_of(proxmox.AddressSection, as_named)}
    cluster = {*keys_of(proxmox.ClusterSection, as_named)} - refused
    assert reported_keys("proxmox") == {"clusters"} | cluster | features | network


def test_the_table_of_vsphere_has_every_key() -> None:
    as_yaml = Format(vsphere.camel)
    keys = {*keys_of(vsphere.GlobalSection, as_yaml), "vcenter", "labels", "nodes"} - {
        "insecureFlag"
    }
    reported = reported_keys("vsphere")
    assert keys <= reported
    page = (DOCS / "providers" / "vsphere.md").read_text()
    assert [key for key in keys_of(vsphere.NodeSection, as_yaml) if f"`{key}`" not in page] == []


def test_whoever_reads_the_secret_of_vsphere_may() -> None:
    """The supervisor without accounts of workers, and each whom the node worker may act as."""
    (binding,) = [
        one for one in yaml.safe_load_all(blocks_of("vsphere")[1]) if one["kind"] == "RoleBinding"
    ]
    bound = {one["name"] for one in binding["subjects"]}
    ours = subjects(Settings(), "kube-system")[0].name
    assert bound >= {ours, *(one.name for one in accounts_of("node", None))}
