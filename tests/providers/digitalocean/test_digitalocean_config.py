"""The configuration: the file, upstream's environment, and every fault of both at once."""

from pathlib import Path

import pytest

from ccm.errors import ConfigurationFaults
from ccm.providers.digitalocean.api import API, quotas
from ccm.providers.digitalocean.config import DigitalOceanConfig, GlobalSection, read_config

VPC = "760e09ef-dc84-11e8-981e-3cfdfeaae000"
UPSTREAM = {
    "DO_ACCESS_TOKEN": "dop_v1_x",
    "DO_OVERRIDE_URL": "https://proxy.example.com/v2/",
    "DO_CLUSTER_ID": "f0b2",
    "DO_CLUSTER_VPC_ID": VPC,
    "REGION": "fra1",
    "DEFAULT_LB_TYPE": "REGIONAL",
    "PUBLIC_ACCESS_FIREWALL_NAME": "k8s-public-access",
    "PUBLIC_ACCESS_FIREWALL_TAGS": "worker, edge",
    "DO_API_RATE_LIMIT_QPS": "0.5",
    "DEBUG_ADDR": ":12301",
}


def read(text: str = "", environment: dict[str, str] | None = None) -> DigitalOceanConfig:
    return read_config(text.encode(), "do.conf", environment or {})


def faults(text: str = "", environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationFaults) as raised:
        read(text, environment)
    return [str(one) for one in raised.value.faults]


def test_upstreams_environment_is_enough() -> None:
    found = read("", UPSTREAM)
    common = found.common
    assert (common.token, common.api_url) == ("dop_v1_x", "https://proxy.example.com")
    assert (common.cluster_id, common.vpc_id, common.region) == ("f0b2", VPC, "fra1")
    assert found.balancers.type == "REGIONAL"
    assert (found.firewall.name, found.firewall.tag) == ("k8s-public-access", ("worker", "edge"))
    assert quotas(common)[API].per_second == 0.5
    assert "dop_v1_x" not in repr(found)


def test_what_the_file_says_counts_first(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("dop_v1_y")
    found = read(f"[Global]\ntoken-file = {token}\nregion = nyc3\n", UPSTREAM)
    common = found.common
    assert (common.token_file, common.token) == (str(token), "")
    assert (common.region, common.cluster_id) == ("nyc3", "f0b2")


def test_defaults_are_upstreams() -> None:
    found = read("", {"DO_ACCESS_TOKEN": "x"})
    assert found.balancers.type == "REGIONAL_NETWORK"
    assert found.common.api_url == "https://api.digitalocean.com"
    assert not found.firewall.name
    assert quotas(GlobalSection())[API].per_second == pytest.approx(5000 / 3600)


def test_all_faults_are_reported_at_once() -> None:
    text = """
    [Global]
    token-file = /nowhere
    api-url = http://api.example.com
    vpc-id = default
    regoin = nyc3
    [LoadBalancer]
    type = GLOBAL
    [Routes]
    on = true
    """
    environment = {"PUBLIC_ACCESS_FIREWALL_NAME": "only", "REGION": "New York"}
    reported = "\n".join(faults(text, environment))
    for words in (
        "do.conf:3 [Global] token-file: cannot be read: No such file or directory",
        "do.conf:4 [Global] api-url: is 'http://api.example.com'",
        "do.conf:5 [Global] vpc-id: is 'default'",
        "do.conf:6 [Global] regoin: is not a key of this file; did you mean region?",
        "do.conf:8 [LoadBalancer] type: is 'GLOBAL'",
        "do.conf:9 [Routes]: is not a section of this file",
        "do.conf [Firewall]: has only one of name and tag",
        "REGION: is 'New York'",
    ):
        assert words in reported, reported


@pytest.mark.parametrize(
    ("text", "environment", "words"),
    [
        ("", {}, "[Global] token-file: is missing"),
        ("", {"DO_ACCESS_TOKEN": "two words"}, "DO_ACCESS_TOKEN: has not the form"),
        ("", {"DO_ACCESS_TOKEN": "x", "DEFAULT_LB_TYPE": "global"}, "DEFAULT_LB_TYPE: is 'global'"),
        ("[Global]\ntoken = x\ntoken-file = /etc/hosts", {}, "token: is given twice"),
        ("[Global]\ntoken = x\nca-file = /nowhere", {}, "ca-file: is '/nowhere'"),
        ("[Global]\ntoken = x\ncalls-per-second = 0", {}, "calls-per-second: is '0'"),
    ],
)
def test_a_fault_is_one_line(text: str, environment: dict[str, str], words: str) -> None:
    (reported,) = faults(text, environment)
    assert words in reported
    assert "two words" not in reported
