"""The controllers, ours and those that providers bring; the syntax of `--controllers`.

One declaration for each package below `workers` holds what others go by: names, accounts, the
objects that `explain` knows, the section of the status page, upstream's queue, flags. What only
the controller's own process needs is in its module (`ControllerModule` in `workers/controller.py`).
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from ccm.errors import ConfigurationFault
from ccm.model.rbac import PolicyRule, event_rule

NODE = "cloud-node-controller"
LIFECYCLE = "cloud-node-lifecycle-controller"
SERVICE = "service-lb-controller"
ROUTE = "node-route-controller"
VOLUME = "volume-label-controller"


@dataclass(frozen=True, slots=True)
class Objects:
    """What `explain` can be asked about: the kind, and how else kubectl lets people write it."""

    kind: str
    short_names: tuple[str, ...]


EXPLAINED = {
    "node": Objects("Node", ("nodes", "no")),
    "service": Objects("Service", ("services", "svc")),
    "pv": Objects("PersistentVolume", ("pvs", "persistentvolume", "persistentvolumes")),
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of the controllers in one package below `workers` without importing it.

    All of them run in the same processes; `node` alone has several, its shards.
    """

    package: str
    aliases: Mapping[str, str]
    """Short name in `--controllers` → name."""
    account: str
    """The service account in our manifests, named as upstream does."""
    explained: str
    """The key in `EXPLAINED` of what it reconciles."""
    section: str
    """The section of the status page that shows its pending objects."""
    rules: Mapping[str, tuple[PolicyRule, ...]]
    """Name → what that may ask of the API server, for `manifests` and `check`.

    Only the node controller may delete Nodes, and none may change the spec of a Service.
    """
    built_in_account: str = ""
    """The account to which the API server's bootstrap policy gives the rights for this work."""
    upstream_queue: str = ""
    """Upstream's name of its work queue, where that is not the worker's."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Fields of `Settings` that mean something to one controller only → its name."""

    @property
    def worker(self) -> str:
        """The name of its worker; of `node`, what the names of its shards begin with."""
        return self.package.replace("_", "-")


DECLARATIONS = (
    Declaration(
        "node",
        {"cloud-node": NODE, "cloud-node-lifecycle": LIFECYCLE},
        # Not `node-controller`: kube-controller-manager acts under that name, and may delete Pods.
        account="cloud-node-controller",
        explained="node",
        section="nodes",
        rules={
            NODE: (
                PolicyRule(
                    "nodes", ("patch",), "provider ID, labels, taint of uninitialized nodes"
                ),
                PolicyRule("nodes/status", ("patch",), "addresses"),
                event_rule(),
            ),
            LIFECYCLE: (
                PolicyRule("nodes", ("patch",), "taint of nodes that are shut down"),
                PolicyRule("nodes", ("delete",), "nodes whose machine is gone"),
                event_rule(),
            ),
        },
        built_in_account="node-controller",
        upstream_queue="Nodes",
        flags={
            "node_status_update_frequency": NODE,
            "prefer_beta_labels": NODE,
            "node_monitor_period": LIFECYCLE,
            "node_deletion_confirmation_period": LIFECYCLE,
            "node_deletion_limit": LIFECYCLE,
            "node_deletion_window": LIFECYCLE,
            "node_vanish_share": LIFECYCLE,
        },
    ),
    Declaration(
        "service",
        {"service": SERVICE},
        account="service-controller",
        explained="service",
        section="load_balancers",
        rules={
            SERVICE: (
                PolicyRule("services", ("get",), "whether one that vanished is really gone"),
                PolicyRule(
                    "services/status", ("patch",), "addresses of load balancers, our finalizer"
                ),
                event_rule(""),
            )
        },
        built_in_account="service-controller",
        flags={"load_balancer_classes": SERVICE, "concurrent_service_syncs": SERVICE},
    ),
    Declaration(
        "route",
        {"route": ROUTE},
        account="route-controller",
        explained="node",
        section="nodes",
        rules={
            ROUTE: (
                PolicyRule("nodes/status", ("patch",), "condition NetworkUnavailable"),
                event_rule(),
            )
        },
        built_in_account="route-controller",
        upstream_queue="Routes",
        flags={"route_reconciliation_period": ROUTE, "cluster_cidr": ROUTE},
    ),
    Declaration(
        "volume_label",
        {"volume-label": VOLUME},
        account="volume-label-controller",
        explained="pv",
        section="volumes",
        rules={
            VOLUME: (
                PolicyRule("persistentvolumes", ("patch",), "labels and node affinity"),
                event_rule(),
            )
        },
        flags={"legacy_zone_labels": VOLUME},
    ),
)
"""Ours, in the order in which their workers start: Nodes come first, as all else waits for them."""
BY_PACKAGE = {declaration.package: declaration for declaration in DECLARATIONS}
BY_WORKER = {declaration.worker: declaration for declaration in DECLARATIONS}

ALIASES = {
    alias: name for declaration in DECLARATIONS for alias, name in declaration.aliases.items()
}
KNOWN = tuple(ALIASES.values())

GROUP = "ccm.cloud_controllers"
"""Entry points of modules with a controller for one provider, named `<provider>.<controller>`."""
DEFAULT_GROUP = "ccm.default_cloud_controllers"
"""The same for those that `*` turns on; they raise `NotNeeded` where nothing asks for them."""
_PROVIDED_NAME = re.compile(r"[a-z]+(-[a-z]+)*")
_TAKEN = {*ALIASES, *KNOWN, "node"}
_kept: dict[str, Any] = {}  # controller → its module


def canonical(items: Sequence[str]) -> tuple[str, ...]:
    """Names with aliases replaced, order and `-` kept."""
    result = []
    for item in items:
        name = item.removeprefix("-")
        result.append(item.removesuffix(name) + ALIASES.get(name, name))
    return tuple(result)


def is_enabled(controller: str, items: Sequence[str]) -> bool:
    """Whether the list turns this controller on: the first item that names it wins, then `*`.

    `*` is all of ours; one that a provider brings has to be named.
    """
    for item in items:
        if item.removeprefix("-") == controller:
            return not item.startswith("-")
    return "*" in items and controller in KNOWN


def enabled_provided(items: Sequence[str]) -> list[str]:
    """The controllers of the provider that the list turns on."""
    named = [item for item in dict.fromkeys(items) if item not in (*KNOWN, "*")]
    return [name for name in named if is_enabled(name, items)]


def provided_by(provider: str) -> dict[str, str]:
    """The controllers that this provider brings, and their modules; nothing is imported."""
    return _provided(GROUP, provider) | _provided(DEFAULT_GROUP, provider)


def with_defaults(items: Sequence[str], provider: str) -> tuple[str, ...]:
    """The list with the provider's controllers that `*` stands for, where it does not name them."""
    said = {item.removeprefix("-") for item in items}
    wanted = sorted(_provided(DEFAULT_GROUP, provider)) if "*" in items else []
    return (*items, *(name for name in wanted if name not in said))


def _provided(group: str, provider: str) -> dict[str, str]:
    parts = [(*point.name.partition("."), point.value) for point in entry_points(group=group)]
    return {
        name: module
        for owner, _, name, module in parts
        if owner == provider and _PROVIDED_NAME.fullmatch(name) and name not in _TAKEN
    }


def unknown(items: Sequence[str], provider: str) -> list[str]:
    """The names in a list that no controller has, of ours or of this provider's."""
    names = [item.removeprefix("-") for item in items if item != "*"]
    strange = [name for name in names if name not in KNOWN]
    known = provided_by(provider) if strange else {}
    return [name for name in strange if name not in known]


def keep_controller(name: str, provider: str) -> None:
    """Import it for this process and its forks, which look for no package any more."""
    _kept[name] = load_controller(name, provider)


def load_controller(name: str, provider: str) -> Any:
    """The module of a controller (`workers.controller`): a package of ours, or the provider's.

    Raises `ConfigurationFault` when that cannot be imported.
    """
    if name in _kept:
        return _kept[name]
    module = f"workers.{name}.controller"
    if name.replace("_", "-") not in _TAKEN:
        module = provided_by(provider).get(name, module)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        problem = f"the module of {name!r} cannot be imported: {error}"
        remedy = f"install what provider {provider!r} needs, or leave {name!r} out"
        raise ConfigurationFault("--controllers", problem, remedy) from error
