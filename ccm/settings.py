"""Every flag once: its name, default, meaning and check; all faults are reported together."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from ipaddress import ip_network
from math import inf, isfinite, nan
from typing import Any

from ccm.controllers import KNOWN, canonical
from ccm.durations import format_duration, parse_duration
from ccm.errors import ConfigurationFault, ConfigurationFaults

Parser = Callable[[str], Any]


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError("is not a duration|write it like 10s, 5m or 1h30m") from None


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "t", "1"}:
        return True
    if text.lower() in {"false", "f", "0"}:
        return False
    raise ValueError("is neither true nor false|write true or false")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number|write a number like 10") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise ValueError("is not a number|write a number like 20 or 0.5")
    return number


def _rates(text: str) -> dict[str, float]:
    rates: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, rate = part.partition("=")
        try:
            rates[name] = float(rate)
        except ValueError:
            raise ValueError("is not a list of rates|write class=calls-per-second,…") from None
        if not name or not 0 < rates[name] < inf:
            raise ValueError(f"has no rate above 0 for {name!r}|write class=calls-per-second,…")
    return rates


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi)?", text)
    if not match:
        raise ValueError("is not a size|write bytes, or a number with Ki, Mi or Gi")
    return int(match[1]) << {None: 0, "Ki": 10, "Mi": 20, "Gi": 30}[match[2]]


def _limit(text: str) -> str:
    if not re.fullmatch(r"\d+(,\d+(\.\d+)?%)?", text):
        raise ValueError("is not a limit|write a number like 10, or with a share: 10,10%")
    return text


def _controllers(text: str) -> tuple[str, ...]:
    try:
        return canonical([item for item in text.split(",") if item])
    except ValueError as unknown:
        known = ", ".join(KNOWN)
        problem = f'"{unknown}" is not in the list of known controllers'
        raise ValueError(f"is not understood: {problem}|choose from: *, {known}") from None


def _cluster_cidr(text: str) -> tuple[str, ...]:
    parts = [part for part in text.strip().split(",") if part]
    try:
        networks = [ip_network(part, strict=False) for part in parts]
    except ValueError:
        raise ValueError("is not a network|write it like 10.244.0.0/16") from None
    if len(parts) > 2 or len({network.version for network in networks}) != len(parts):
        raise ValueError("is not one network, or one of each IP family|drop one of them")
    return tuple(str(network) for network in networks)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _choice(*allowed: str) -> Parser:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"is not known|choose one of {', '.join(allowed)}")
        return text

    return parse


@dataclass(frozen=True, slots=True)
class Flag:
    """What the command line and the documentation need to know of a setting."""

    help: str
    group: str
    parse: Parser
    metavar: str
    show: Callable[[Any], str]


def _flag(default: Any, group: str, parse: Parser, text: str, metavar: str = "") -> Any:
    kinds: dict[Parser, tuple[str, Callable[[Any], str]]] = {
        _duration: ("DURATION", format_duration),
        _boolean: ("BOOL", lambda value: str(value).lower()),
        _whole: ("N", str),
        _size: ("SIZE", str),
        _number: ("RATE", lambda value: f"{value:g}"),
        _controllers: ("NAME,-NAME,*", ",".join),
        _cluster_cidr: ("CIDR[,CIDR]", ",".join),
        _names: ("NAME,…", ",".join),
        _rates: ("CLASS=RATE,…", lambda value: ",".join(f"{k}={v:g}" for k, v in value.items())),
    }
    meta, show = kinds.get(parse, ("TEXT", str))
    flag = Flag(text, group, parse, metavar or meta, show)
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"flag": flag})
    return field(default=default, metadata={"flag": flag})


def default_runtime_dir() -> str:
    """Where sockets and the lock live: systemd's directory for root, the user's own otherwise."""
    if os.geteuid() == 0:
        return "/run/ccm-supervisor"
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/ccm-supervisor-{os.geteuid()}"
    return os.path.join(base, "ccm-supervisor")


CLOUD, KUBE, LEASE = "Cloud", "Kubernetes API", "Leader election"
NODE, CONTROLLERS, PROCESS, LOGS = "Node controller", "Controllers", "Processes", "Logging"


@dataclass(frozen=True)
class Settings:
    """The settings of one supervisor and its workers; durations are seconds."""

    cloud_provider: str = _flag(
        "", CLOUD, str, "Cloud to use; see the command 'providers'.", "NAME"
    )
    cloud_config: str = _flag("", CLOUD, str, "Configuration file of the provider.", "FILE")
    cluster_name: str = _flag("kubernetes", CLOUD, str, "Name that marks this cluster's objects.")
    cloud_rate: dict[str, float] = _flag(
        {}, CLOUD, _rates, "Calls a second per budget class, instead of the provider's quota."
    )
    cloud_reserve: float = _flag(
        0.0, CLOUD, _number, "Share of each quota that is left to other users of the account."
    )
    cloud_call_timeout: float = _flag(
        30.0, CLOUD, _duration, "Longest a single cloud call may take."
    )

    kubeconfig: str = _flag(
        "", KUBE, str, "Kubeconfig file; without it, the Pod's own account.", "FILE"
    )
    master: str = _flag("", KUBE, str, "API server address; overrides the kubeconfig's.", "URL")
    kube_api_qps: float = _flag(0.0, KUBE, _number, "Requests a second per process; 0 = no limit.")
    kube_api_burst: int = _flag(0, KUBE, _whole, "Requests at once above --kube-api-qps.")
    watch_idle_limit: float = _flag(
        70.0, KUBE, _duration, "A watch that is silent for longer is asked for anew."
    )
    kube_api_in_flight: int = _flag(32, KUBE, _whole, "Requests one process keeps in flight.")

    leader_elect: bool = _flag(True, LEASE, _boolean, "Act only while holding the lease.")
    leader_elect_lease_duration: float = _flag(
        15.0, LEASE, _duration, "How long others wait after the last renewal they saw."
    )
    leader_elect_renew_deadline: float = _flag(
        10.0, LEASE, _duration, "Without a renewal for this long, the leader stops acting."
    )
    leader_elect_retry_period: float = _flag(2.0, LEASE, _duration, "Time between two tries.")
    leader_elect_resource_lock: str = _flag(
        "leases", LEASE, _choice("leases"), "Kind of object that is held."
    )
    leader_elect_resource_name: str = _flag(
        "cloud-controller-manager", LEASE, str, "Name of the Lease."
    )
    leader_elect_resource_namespace: str = _flag(
        "kube-system", LEASE, str, "Namespace of the Lease."
    )

    concurrent_node_syncs: int = _flag(
        0, NODE, _whole, "Nodes written at the same time; 0 = as --kube-api-in-flight allows."
    )
    node_monitor_period: float = _flag(
        5.0, NODE, _duration, "Time between two questions about nodes that are not Ready."
    )
    node_deletion_limit: str = _flag(
        "10,10%",
        NODE,
        _limit,
        "Nodes deleted per --node-deletion-window at most: the larger of a number and a share.",
        "N,SHARE%",
    )
    node_deletion_window: float = _flag(
        600.0, NODE, _duration, "Time over which --node-deletion-limit counts."
    )
    node_vanish_share: float = _flag(
        0.3, NODE, _number, "When more than this share of nodes vanish at once, none is deleted."
    )

    controllers: tuple[str, ...] = _flag(
        ("*",), CONTROLLERS, _controllers, "Controllers to run; -NAME turns one off."
    )
    configure_cloud_routes: bool = _flag(
        True, CONTROLLERS, _boolean, "Program the cloud's routes to the nodes' pod networks."
    )
    cluster_cidr: tuple[str, ...] = _flag(
        (), CONTROLLERS, _cluster_cidr, "Network of all pods; routes inside it are ours to delete."
    )
    route_reconciliation_period: float = _flag(
        600.0, CONTROLLERS, _duration, "Time between two comparisons of all routes."
    )
    concurrent_service_syncs: int = _flag(
        10, CONTROLLERS, _whole, "Services worked on at the same time."
    )
    load_balancer_classes: tuple[str, ...] = _flag(
        (), CONTROLLERS, _names, "Values of spec.loadBalancerClass that are ours, too."
    )
    legacy_zone_labels: bool = _flag(
        False, CONTROLLERS, _boolean, "Label volumes with failure-domain.beta.kubernetes.io, too."
    )

    node_workers: int = _flag(1, PROCESS, _whole, "Processes that share the nodes.")
    runtime_dir: str = _flag(
        default_runtime_dir(), PROCESS, str, "Directory for sockets and the lock.", "DIR"
    )
    state_dir: str = _flag(
        "", PROCESS, str, "Directory for what survives a restart; else the runtime one.", "DIR"
    )
    shutdown_timeout: float = _flag(
        20.0, PROCESS, _duration, "Longest an orderly stop waits for work in hand."
    )
    worker_silence_limit: float = _flag(
        10.0, PROCESS, _duration, "A worker silent for longer is killed and started again."
    )

    worker_steady_time: float = _flag(
        10.0, PROCESS, _duration, "A worker that ran for longer is started at once when it dies."
    )
    worker_memory_limit: int = _flag(
        0, PROCESS, _size, "A worker that uses more memory hands over to a new one; 0 = no limit."
    )

    v: int = _flag(0, LOGS, _whole, "Verbosity; 4 and more logs every decision.")
    logging_format: str = _flag("text", LOGS, _choice("text", "json"), "Form of a log record.")


def flags() -> Iterator[tuple[str, "Field[Any]", Flag]]:
    """Every setting: flag name, dataclass field, and what is known about it."""
    for item in fields(Settings):
        yield item.name.replace("_", "-"), item, item.metadata["flag"]


def parse(texts: Mapping[str, str | None]) -> Settings:
    """Settings from flag texts by field name (None = not given); raises `ConfigurationFaults`."""
    values: dict[str, Any] = {}
    faults: list[ConfigurationFault] = []
    for name, item, flag in flags():
        given = texts.get(item.name)
        if given is None:
            continue
        try:
            values[item.name] = flag.parse(given)
        except ValueError as fault:
            problem, _, remedy = str(fault).partition("|")
            faults.append(ConfigurationFault(f"--{name}", f"{given!r} {problem}", remedy))
    settings = Settings(**values)
    broken = {fault.field for fault in faults}
    faults += [fault for fault in check(settings) if fault.field not in broken]
    if faults:
        raise ConfigurationFaults(faults)
    return settings


def check(settings: Settings) -> Iterator[ConfigurationFault]:
    """What is wrong with settings that are well-formed one by one."""
    if not settings.cloud_provider:
        yield ConfigurationFault(
            "--cloud-provider", "cannot be empty", "name one that 'ccm-supervisor providers' lists"
        )
    for name in ("node_workers", "kube_api_in_flight", "concurrent_service_syncs"):
        if getattr(settings, name) < 1:
            flag = name.replace("_", "-")
            yield ConfigurationFault(f"--{flag}", "must be a positive number", "use 1 or more")
    for name in ("concurrent_node_syncs", "kube_api_qps", "kube_api_burst"):
        if getattr(settings, name) < 0:
            flag = name.replace("_", "-")
            yield ConfigurationFault(f"--{flag}", "cannot be negative", "use 0 for no limit")
    for name in (
        "shutdown_timeout",
        "worker_silence_limit",
        "cloud_call_timeout",
        "node_monitor_period",
        "watch_idle_limit",
        "node_deletion_window",
        "route_reconciliation_period",
    ):
        if getattr(settings, name) <= 0:
            flag = name.replace("_", "-")
            yield ConfigurationFault(f"--{flag}", "must be longer than 0", "use for example 20s")
    if not 0 <= settings.cloud_reserve < 1:
        yield ConfigurationFault(
            "--cloud-reserve", "is not a share", "use a number from 0, below 1, such as 0.2"
        )
    if not 0 < settings.node_vanish_share <= 1:
        yield ConfigurationFault(
            "--node-vanish-share", "is not a share of nodes", "use a number above 0, at most 1"
        )
    if settings.leader_elect:
        yield from _check_lease(settings)


def _check_lease(settings: Settings) -> Iterator[ConfigurationFault]:
    retry = settings.leader_elect_retry_period
    deadline = settings.leader_elect_renew_deadline
    if retry <= 0:
        yield ConfigurationFault(
            "--leader-elect-retry-period", "must be longer than 0", "use for example 2s"
        )
    if deadline <= 1.2 * retry:
        yield ConfigurationFault(
            "--leader-elect-renew-deadline",
            f"{format_duration(deadline)} is not longer than 1.2 × the retry period",
            f"use more than {format_duration(1.2 * retry)}",
        )
    if settings.leader_elect_lease_duration <= deadline:
        yield ConfigurationFault(
            "--leader-elect-lease-duration",
            "is not longer than --leader-elect-renew-deadline",
            f"use more than {format_duration(deadline)}",
        )
