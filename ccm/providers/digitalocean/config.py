"""The configuration: upstream's environment, and a --cloud-config file, which counts first.

All faults of both are reported at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ccm.cloud.config_file import (
    choice,
    of_form,
    secure_url,
    why_no_certificate,
)
from ccm.cloud.credentials import TOKEN, SecretText
from ccm.cloud.sections import Sections, setting
from ccm.model.cloud import UUID
from ccm.providers.digitalocean.ids import TAG

API_URL = "https://api.digitalocean.com"
REGIONAL, NETWORK = "REGIONAL", "REGIONAL_NETWORK"
TYPES = (REGIONAL, NETWORK)
IPV4, DUALSTACK = "IPV4", "DUALSTACK"
NODE_PORTS = (30000, 32767)
STACKS = (IPV4, DUALSTACK)


def _url(value: str) -> str:
    """The API's address, with `/v2` or without."""
    return secure_url(value).removesuffix("/v2")


def _rate(value: str) -> float:
    if not 0 < (rate := float(value)) < 1000:
        raise ValueError(value)
    return rate


_URL = _url, "give https://host"
_TOKEN = of_form(TOKEN, "give a personal access token")
_TAG = of_form(TAG, "give letters, digits, colons, dashes and underscores")
_CLUSTER_ID = of_form("[A-Za-z0-9_:-]{1,200}", _TAG[1])
_VPC = of_form(UUID, "give the UUID of a VPC")
_REGION = of_form("[a-z]{3}[0-9]{1,2}", "give a slug as nyc3")
_RATE = _rate, "give a number of calls"
_PORT = of_form("[0-9]{1,5}(-[0-9]{1,5})?", "give a port, or two with a dash")
_FIREWALL_NAME = of_form("[a-zA-Z0-9][a-zA-Z0-9.-]+", "give letters, digits, dots and dashes")


@dataclass(frozen=True, slots=True)
class GlobalSection:
    """`[Global]`: how the API is reached, and what the cluster is there."""

    token_file: str = ""
    token: str = setting("", _TOKEN, is_secret=True)
    api_url: str = setting(API_URL, _URL)
    ca_file: str = ""
    cluster_id: str = setting("", _CLUSTER_ID)
    vpc_id: str = setting("", _VPC)
    region: str = setting("", _REGION)
    calls_per_second: float = setting(0.0, _RATE)  # 0 is what DigitalOcean allows

    @property
    def secret(self) -> SecretText:
        """The token."""
        return SecretText("[Global] token", self.token, self.token_file)


@dataclass(frozen=True, slots=True)
class BalancerSection:
    """`[LoadBalancer]`: what Services get that do not say."""

    type: str = setting(NETWORK, choice(*TYPES))
    network_stack: str = setting("", choice(*STACKS))


@dataclass(frozen=True, slots=True)
class FirewallSection:
    """`[Firewall]`: the one that opens node ports; without a name there is none."""

    name: str = setting("", _FIREWALL_NAME)
    tag: tuple[str, ...] = setting((), _TAG)
    port: tuple[str, ...] = setting((), _PORT)

    def opens(self, port: int) -> bool:
        """Whether Services may open a port on Nodes: a node port, or one in the file."""
        ends = [(int(a), int(b or a)) for a, _, b in (item.partition("-") for item in self.port)]
        return any(low <= port <= high for low, high in (NODE_PORTS, *ends))


@dataclass(frozen=True, slots=True)
class DigitalOceanConfig:
    """What both say."""

    common: GlobalSection = GlobalSection()
    balancers: BalancerSection = BalancerSection()
    firewall: FirewallSection = FirewallSection()


SECTIONS: Mapping[str, type] = {
    "Global": GlobalSection,
    "LoadBalancer": BalancerSection,
    "Firewall": FirewallSection,
}
ENVIRONMENT = {
    "DO_ACCESS_TOKEN": ("Global", "token"),
    "DO_OVERRIDE_URL": ("Global", "api-url"),
    "DO_CLUSTER_ID": ("Global", "cluster-id"),
    "DO_CLUSTER_VPC_ID": ("Global", "vpc-id"),
    "REGION": ("Global", "region"),
    "DO_API_RATE_LIMIT_QPS": ("Global", "calls-per-second"),
    "DEFAULT_LB_TYPE": ("LoadBalancer", "type"),
    "PUBLIC_ACCESS_FIREWALL_NAME": ("Firewall", "name"),
    "PUBLIC_ACCESS_FIREWALL_TAGS": ("Firewall", "tag"),
}
"""Upstream's variables, and the keys that they stand for."""


def read_config(content: bytes, path: str, environment: Mapping[str, str]) -> DigitalOceanConfig:
    """The configuration; raises `ConfigurationFaults` with everything wrong in it."""
    sections = Sections(content, path, SECTIONS)
    for variable, (title, key) in ENVIRONMENT.items():
        value = environment.get(variable, "").strip()
        if value and not (key == "token" and sections.has(title, "token-file")):
            texts = [item.strip() for item in value.split(",")] if key == "tag" else [value]
            sections.add(title, key, texts, variable)
    config = DigitalOceanConfig(
        common=sections.read(GlobalSection),
        balancers=sections.read(BalancerSection),
        firewall=sections.read(FirewallSection),
    )
    _check(config, sections)
    sections.faults.check()
    return config


def _check(config: DigitalOceanConfig, sections: Sections) -> None:
    common, firewall, faults = config.common, config.firewall, sections.faults
    remedy = "give [Global] token-file, or DO_ACCESS_TOKEN in the environment"
    common.secret.check(faults, remedy)
    if why := common.ca_file and why_no_certificate(common.ca_file):
        faults.add("[Global] ca-file", why, "give the file of a certificate")
    if bool(firewall.name) != bool(firewall.tag):
        remedy = "give a name and at least one tag of the droplets, or neither"
        faults.add("[Firewall]", "has only one of name and tag", remedy)
