"""gce.conf as upstream reads it: what each key says, and what is wrong with it."""

import pytest

from ccm.errors import ConfigurationFaults
from ccm.providers.gce.config import Place, place_of, read_config

METADATA = {
    "project/project-id": "lab",
    "instance/zone": "projects/1/zones/europe-west1-b",
    "instance/network-interfaces/0/network": "projects/1/networks/default",
}


def read(*lines: str) -> Place:
    content = "\n".join(("[global]", *lines)).encode()
    return place_of(read_config(content, "gce.conf"), METADATA)


def test_what_the_file_leaves_out_the_metadata_server_says() -> None:
    network = "projects/lab/global/networks/default"
    assert read() == Place("lab", "lab", "europe-west1", network, "")


@pytest.mark.parametrize(
    ("lines", "network", "subnetwork"),
    [
        (["network-name = n"], "projects/p/global/networks/n", ""),
        (
            ["network-project-id = host", "network-name = n", "subnetwork-name = s"],
            "projects/host/global/networks/n",
            "projects/host/regions/us-east1/subnetworks/s",
        ),
        (
            ["network-name = https://www.googleapis.com/compute/v1/projects/x/global/networks/n"],
            "projects/x/global/networks/n",
            "",
        ),
    ],
)
def test_networks_are_names_or_urls(lines: list[str], network: str, subnetwork: str) -> None:
    place = read("project-id = p", "local-zone = us-east1-c", *lines)
    assert (place.network, place.subnetwork) == (network, subnetwork)
    assert (place.project, place.region) == ("p", "us-east1")


def test_every_key_of_upstream_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Keys that it does not know are reported, as upstream goes on with them."""
    read(
        "token-url = nil", "regional = true", "multizone = true", "secondary-range-name = pods",
        "node-tags = a", "node-tags = b", "node-instance-prefix = n", "alpha-features = ILBSubsets",
        "container-api-endpoint = https://container.googleapis.com/", "stack-type = IPV4",
        "api-endpoint = https://compute.googleapis.com/compute/v1/",
    )  # fmt: skip
    assert not caplog.records
    read("colour = blue")
    assert [one.message for one in caplog.records] == [
        "a key of the cloud configuration is not known"
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("project-id = No_Project", "project-id"),
        ("local-zone = europe", "local-zone"),
        ("api-endpoint = http://compute.example.com/", "api-endpoint"),
        ("token-url = ftp://example.com", "token-url"),
        ("token-body = {}", "token-body is without token-url"),
        ("alpha-features = SkipIGsManagement", "SkipIGsManagement"),
        ("stack-type = IPV5", "stack-type"),
    ],
)
def test_what_is_wrong_is_a_fault_with_its_line(line: str, problem: str) -> None:
    with pytest.raises(ConfigurationFaults, match=r"gce\.conf:2") as found:
        read_config(f"[global]\n{line}\n".encode(), "gce.conf")
    assert problem.replace(" is", ": is") in str(found.value)
