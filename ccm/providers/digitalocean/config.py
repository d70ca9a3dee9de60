"""The configuration: upstream's environment, and a --cloud-config file, which counts first.

All faults of both are told at once.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from ccm.cloud.config_file import (
    READABLE,
    ConfigReader,
    Reading,
    SectionReader,
    keys_of,
    one_of,
    parse_gcfg,
    why_no_certificate,
    why_unreadable,
)
from ccm.errors import ConfigurationFault
from ccm.model.cloud import UUID
from ccm.providers.digitalocean.ids import TAG

S = TypeVar("S")

API_URL = "https://api.digitalocean.com"
REGIONAL, NETWORK = "REGIONAL", "REGIONAL_NETWORK"
TYPES = (REGIONAL, NETWORK)
IPV4, DUALSTACK = "IPV4", "DUALSTACK"
STACKS = (IPV4, DUALSTACK)
TOKEN = re.compile(r"[!-~]+")
FIREWALL_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]+")


@dataclass(frozen=True, slots=True)
class GlobalSection:
    """`[Global]`: how the API is reached, and what the cluster is there."""

    token_file: str = ""
    token: str = field(default="", repr=False)
    api_url: str = API_URL
    ca_file: str = ""
    cluster_id: str = ""
    vpc_id: str = ""
    region: str = ""
    calls_per_second: float = 0.0  # 0 is what DigitalOcean allows


@dataclass(frozen=True, slots=True)
class BalancerSection:
    """`[LoadBalancer]`: what Services get that do not say."""

    type: str = NETWORK
    network_stack: str = ""


@dataclass(frozen=True, slots=True)
class FirewallSection:
    """`[Firewall]`: the one that opens node ports; without a name there is none."""

    name: str = ""
    tag: tuple[str, ...] = ()


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
    grouped: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    faults = ConfigReader(path, "Global", (), {})
    for entry in parse_gcfg(content, path):
        grouped[entry.section][entry.key].append(entry.value)
        if entry.section not in map(str.lower, SECTIONS) or entry.name:
            known = ", ".join(f"[{one}]" for one in SECTIONS)
            place = f'[{entry.section} "{entry.name}"]' if entry.name else f"[{entry.section}]"
            faults.add_at(place, "is not a section of this file", f"use {known}")
    _add_environment(grouped, environment, faults)

    def read(kind: type[S], section: str) -> S:
        reader = SectionReader(path, section, keys_of(kind), grouped[section.lower()])
        found = reader.read(kind, READINGS[section])
        faults.faults += reader.faults
        return found

    config = DigitalOceanConfig(
        common=read(GlobalSection, "Global"),
        balancers=read(BalancerSection, "LoadBalancer"),
        firewall=read(FirewallSection, "Firewall"),
    )
    _check(config, faults)
    faults.check()
    return config


def _add_environment(
    grouped: dict[str, dict[str, list[str]]], environment: Mapping[str, str], faults: ConfigReader
) -> None:
    """What the file leaves out; a wrong value is told by the name of its variable."""
    for variable, (section, key) in ENVIRONMENT.items():
        value = environment.get(variable, "").strip()
        there = grouped[section.lower()]
        if not value or key in there or (key == "token" and "token-file" in there):
            continue
        read, remedy = READINGS[section][key]
        items = [one.strip() for one in value.split(",")] if key == "tag" else [value]
        try:
            for item in items:
                read(item)
            there[key] = items
        except ValueError:
            shown = "holds none" if key == "token" else f"is {value!r}"
            faults.faults.append(ConfigurationFault(variable, shown, remedy))
            if key == "token":
                there[key] = ["-"]  # that there is none is no second fault


def _check(config: DigitalOceanConfig, faults: ConfigReader) -> None:
    common, firewall = config.common, config.firewall
    if common.token_file and common.token:
        faults.add("token", "is given twice", "give token-file or token")
    elif why := common.token_file and why_unreadable(common.token_file):
        faults.add("token-file", why, READABLE)
    elif not common.token_file and not common.token:
        remedy = "give [Global] token-file, or DO_ACCESS_TOKEN in the environment"
        faults.add("token-file", "is missing", remedy)
    if why := common.ca_file and why_no_certificate(common.ca_file):
        faults.add("ca-file", why, "give the file of a certificate")
    if bool(firewall.name) != bool(firewall.tag):
        remedy = "give a name and at least one tag of the droplets, or neither"
        faults.add_at("[Firewall]", "has only one of name and tag", remedy)


def _url(value: str) -> str:
    """The API's address, with `/v2` or without; a token goes there, so it is HTTPS or local."""
    url = urlsplit(value)
    is_local = url.hostname in ("127.0.0.1", "::1", "localhost")
    if not url.hostname or url.username or url.query or url.fragment:
        raise ValueError(value)
    if url.scheme != "https" and not (url.scheme == "http" and is_local):
        raise ValueError(value)
    return value.rstrip("/").removesuffix("/v2")


def _of_form(form: re.Pattern[str], remedy: str) -> Reading:
    def read(value: str) -> str:
        if not form.fullmatch(value):
            raise ValueError(value)
        return value

    return read, remedy


def _rate(value: str) -> float:
    if not 0 < (rate := float(value)) < 1000:
        raise ValueError(value)
    return rate


_TAG = _of_form(TAG, "give letters, digits, colons, dashes and underscores")
READINGS: Mapping[str, Mapping[str, Reading]] = {
    "Global": {
        "api-url": (_url, "give https://host"),
        "token": _of_form(TOKEN, "give a personal access token"),
        "cluster-id": _of_form(re.compile(r"[A-Za-z0-9_:-]{1,200}"), _TAG[1]),
        "vpc-id": _of_form(UUID, "give the UUID of a VPC"),
        "region": _of_form(re.compile(r"[a-z]{3}[0-9]{1,2}"), "give a slug as nyc3"),
        "calls-per-second": (_rate, "give a number of calls"),
    },
    "LoadBalancer": {
        "type": (one_of(TYPES), f"use {' or '.join(TYPES)}"),
        "network-stack": (one_of(STACKS), f"use {' or '.join(STACKS)}"),
    },
    "Firewall": {
        "name": _of_form(FIREWALL_NAME, "give letters, digits, dots and dashes"),
        "tag": _TAG,
    },
}
