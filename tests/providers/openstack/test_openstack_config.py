"""cloud.conf as upstream has it, clouds.yaml, and what is told about wrong ones."""

import logging
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from fakepve.certs import make_cert

from ccm.errors import ConfigurationFaults
from ccm.providers.openstack.config import (
    BalancerClass,
    BalancerSection,
    MetadataSection,
    NetworkingSection,
    OpenStackConfig,
    RouteSection,
    read_config,
)
from ccm.providers.openstack.credentials import GlobalSection
from ccm.providers.openstack.keystone import token_request, tokens_url

URL = "https://keystone.test:5000/v3"
LOGIN = f"""
[Global]
auth-url = {URL}
application-credential-id = app
application-credential-secret = "s;cret"
"""
FULL = f"""{LOGIN}
region = RegionOne
os-endpoint-type = internalURL
ca-file = {{ca}}
tls-insecure = true
[networking]
Internal-Network-Name = nodes
internal-network-name = more
public-network-name = "out side"
ipv6-support-disabled
address-sort-order = fd00::/8, 10.0.0.0/8, nonsense
[LoadBalancer]
lb-version = v2
lb-provider = amphora
lb-method = SOURCE_IP
floating-network-id = net
create-monitor = yes
monitor-delay = 1m30s
monitor-timeout = 5s
monitor-max-retries = 2
max-shared-lb = 20
[LoadBalancerClass "Fast one"]
subnet-id = sub
[Route]
router-id = router
[Metadata]
search-order = configDrive
request-timeout = 10s
[BlockStorage]
ignore-volume-az = true
"""


@pytest.fixture
def full(tmp_path: Path) -> str:
    """All of upstream's keys."""
    ca, _, _ = make_cert(str(tmp_path), "keystone.test")
    return FULL.replace("{ca}", ca)


def test_all_keys_of_upstream_are_read(full: str) -> None:
    config = read_config(full.encode(), "")
    assert config == OpenStackConfig(
        credentials=GlobalSection(
            auth_url=URL,
            application_credential_id="app",
            application_credential_secret="s;cret",
            region="RegionOne",
            os_endpoint_type="internal",
            ca_file=full.partition("ca-file = ")[2].partition("\n")[0],
            tls_insecure=True,
        ),
        networking=NetworkingSection(
            ipv6_support_disabled=True,
            public_network_name=("out side",),
            internal_network_name=("nodes", "more"),
            address_sort_order="fd00::/8, 10.0.0.0/8, nonsense",
        ),
        balancers=BalancerSection(
            lb_version="v2",
            lb_provider="amphora",
            lb_method="SOURCE_IP",
            floating_network_id="net",
            create_monitor=True,
            monitor_delay=90.0,
            monitor_timeout=5.0,
            monitor_max_retries=2,
            max_shared_lb=20,
        ),
        classes={"Fast one": BalancerClass(subnet_id="sub")},
        routes=RouteSection("router"),
        metadata=MetadataSection("configDrive", 10.0),
    )
    assert [str(network) for network in config.networking.sort_order] == ["fd00::/8", "10.0.0.0/8"]
    assert "s;cret" not in repr(config)


def test_what_has_no_effect_is_reported_at_the_start(
    full: str, caplog: pytest.LogCaptureFixture
) -> None:
    """OS27, OS98."""
    caplog.set_level(logging.WARNING)
    read_config(f"{full}\n[LoadBalancer]\nuse-octavia = true\n[Odd]\nkey = 1\n".encode(), "")
    reported = {
        getattr(record, "key", "") or getattr(record, "item", "") for record in caplog.records
    }
    assert reported == {"use-octavia", "key", "nonsense"}
    caplog.clear()
    read_config(full.encode(), "", is_start=False)
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", ["[Global] auth-url", "[Global] password", "[Global] username"]),
        ("[Global]\nauth-url = keystone", ["auth-url", "password", "username"]),
        (f"[Global]\nauth-url={URL}\nusername=u\npassword=p", ["user-domain-name"]),
        (f"[Global]\nauth-url={URL}\napplication-credential-id=a", ["credential-secret"]),
        (
            f"{LOGIN}os-endpoint-type = outside\nkey-file = k",
            ["os-endpoint-type", "cert-file", "key-file"],
        ),
        (f"{LOGIN}[LoadBalancer]\nlb-version = v1", ["lb-version"]),
        (f"{LOGIN}[LoadBalancer]\nlb-method = BEST", ["lb-method"]),
        (f"{LOGIN}[LoadBalancer]\nmonitor-delay = 5", ["monitor-delay"]),
        (f"{LOGIN}[LoadBalancer]\nmonitor-max-retries = 11", ["monitor-max-retries"]),
        (f"{LOGIN}[LoadBalancer]\ncreate-monitor = maybe", ["create-monitor"]),
        (f"{LOGIN}[Metadata]\nrequest-timeout = -1s", ["request-timeout"]),
        (f"{LOGIN}use-clouds = true\nclouds-file = /nowhere", ["use-clouds"]),
    ],
)
def test_everything_wrong_is_reported_at_once(text: str, faults: list[str]) -> None:
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(text.encode(), "cloud.conf")
    lines = str(raised.value).splitlines()
    assert len(lines) == len(faults), lines
    assert all(fault in line for fault, line in zip(faults, lines, strict=True)), lines


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A clouds.yaml with its secrets beside it, and the lines that point to it."""
    for name in ("OS_CLOUD", "OS_CLIENT_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "clouds.yaml").write_text(
        f"""
        clouds:
          one:
            region_name: Here
            interface: internal
            verify: false
            auth: {{auth_url: "{URL}", username: me, user_domain_name: ours, project_id: p}}
          two: {{auth: {{}}}}
        """
    )
    (tmp_path / "secure.yaml").write_text("clouds: {one: {auth: {password: hidden}}}")
    return f"[Global]\nuse-clouds = true\nclouds-file = {tmp_path}/clouds.yaml\n"


def test_what_the_file_leaves_out_is_taken_from_clouds_yaml(
    clouds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS97."""
    known = read_config(f"{clouds}cloud = one\nregion = There\n".encode(), "").credentials
    assert (known.region, known.os_endpoint_type, known.tls_insecure) == ("There", "internal", True)
    assert (known.username, known.password, known.tenant_id) == ("me", "hidden", "p")
    monkeypatch.setenv("OS_CLOUD", "one")
    assert read_config(clouds.encode(), "").credentials.region == "Here"


@pytest.mark.parametrize("file", ["~no-such-user/clouds.yaml", ""])
def test_a_home_that_is_not_known_is_no_place_of_clouds_yaml(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str
) -> None:
    """A user of a container may have none, and no entry in its list of users."""

    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", file)
    with pytest.raises(ConfigurationFaults, match=r"no clouds\.yaml in"):
        read_config(b"[Global]\nuse-clouds = true\n", "cloud.conf")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("where", ["", "/clouds.yaml"])
def test_what_another_user_put_into_the_working_directory_chooses_no_cloud(
    clouds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It may be /tmp. A file that is named is the operator's choice."""
    os.chown(f"{tmp_path}{where}", 12345, -1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationFaults, match="belongs to user 12345; name the file that is"):
        read_config(b"[Global]\nuse-clouds = true\ncloud = one\n", "cloud.conf")
    assert read_config(f"{clouds}cloud = one".encode(), "").credentials.username == "me"


def test_clouds_yaml_keeps_texts_as_they_are_written(clouds: str) -> None:
    file = Path(clouds.partition("clouds-file = ")[2].strip())
    auth = "{auth_url: http://k, username: 1e3, user_domain_name: no, password: 0123456}"
    file.write_text(f"clouds: {{one: {{region_name: off, insecure: no, auth: {auth}}}}}")
    file.with_name("secure.yaml").unlink()
    known = read_config(clouds.encode(), "").credentials
    assert (known.username, known.user_domain_name) == ("1e3", "no")
    assert (known.password, known.region, known.tls_insecure) == ("0123456", "off", False)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("clouds: {one: {}}\nclouds: {}", "clouds.yaml:2 clouds: stands twice, in line 1 too"),
        ("clouds:\n  one: {auth: {password: %x}}", "clouds.yaml:2: is not YAML; put a value that"),
        ("- clouds", "clouds.yaml:1: is not a mapping; start it with clouds:"),
        ("a: " + "x" * (1 << 20), "clouds.yaml: cannot be read: it has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_in_clouds_yaml_is_reported(clouds: str, content: str, reported: str) -> None:
    file = Path(clouds.partition("clouds-file = ")[2].strip())
    file.write_text(content)
    with pytest.raises(ConfigurationFaults) as raised:
        read_config(clouds.encode(), "")
    assert reported in str(raised.value)


@pytest.mark.parametrize("chosen", ["", "cloud = three"])
def test_one_cloud_of_several_has_to_be_chosen(clouds: str, chosen: str) -> None:
    with pytest.raises(ConfigurationFaults, match="give one of one, two"):
        read_config(f"{clouds}{chosen}".encode(), "")


PASSWORD = {"auth_url": URL, "username": "me", "password": "p", "domain_name": "ours"}
USER: dict[str, Any] = {"name": "me", "domain": {"name": "ours"}}


@pytest.mark.parametrize(
    ("known", "method", "details", "scope"),
    [
        (
            {**PASSWORD, "tenant_name": "k8s", "tenant_domain_id": "default"},
            "password",
            {"user": {**USER, "password": "p"}},
            {"project": {"name": "k8s", "domain": {"id": "default"}}},
        ),
        (
            {"user_id": "u", "password": "p", "tenant_id": "t"},
            "password",
            {"user": {"id": "u", "password": "p"}},
            {"project": {"id": "t"}},
        ),
        (
            {"application_credential_id": "a", "application_credential_secret": "s"},
            "application_credential",
            {"id": "a", "secret": "s"},
            None,
        ),
        (
            {**PASSWORD, "application_credential_name": "a", "application_credential_secret": "s"},
            "application_credential",
            {"name": "a", "secret": "s", "user": USER},
            None,
        ),
        (
            {"trust_id": "x", "trustee_id": "u", "trustee_password": "p"},
            "password",
            {"user": {"id": "u", "password": "p"}},
            {"OS-TRUST:trust": {"id": "x"}},
        ),
        ({"token": "t", "tenant_id": "p"}, "token", {"id": "t"}, {"project": {"id": "p"}}),
    ],
)
def test_keystone_is_asked_as_it_takes_it(
    known: dict[str, Any], method: str, details: Any, scope: Any
) -> None:
    auth = token_request(GlobalSection(**known))["auth"]
    assert auth["identity"] == {"methods": [method], method: details}
    assert auth.get("scope") == scope


@pytest.mark.parametrize("url", ["http://k", "http://k/", "http://k/v3", "http://k/v2.0/"])
def test_keystones_url_may_have_a_version_or_not(url: str) -> None:
    assert tokens_url(url) == "http://k/v3"
