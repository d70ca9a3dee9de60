"""The controllers by name, ours and those that providers bring; the syntax of `--controllers`."""

import importlib
import re
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from ccm.errors import ConfigurationFault

NODE = "cloud-node-controller"
LIFECYCLE = "cloud-node-lifecycle-controller"
SERVICE = "service-lb-controller"
ROUTE = "node-route-controller"
VOLUME = "volume-label-controller"

ALIASES = {
    "cloud-node": NODE,
    "cloud-node-lifecycle": LIFECYCLE,
    "service": SERVICE,
    "route": ROUTE,
    "volume-label": VOLUME,
}
KNOWN = tuple(ALIASES.values())

GROUP = "ccm.cloud_controllers"
"""Entry points of modules with a controller for one provider, named `<provider>.<controller>`."""
DEFAULT_GROUP = "ccm.default_cloud_controllers"
"""The same for those that `*` turns on; they raise `NotNeeded` where nothing asks for them."""
_PROVIDED_NAME = re.compile(r"[a-z]+(-[a-z]+)*")
_TAKEN = {*ALIASES, *KNOWN, "node"}


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


def load_controller(name: str, provider: str) -> Any:
    """The module of a controller (`workers.controller`): a package of ours, or the provider's.

    Raises `ConfigurationFault` when that cannot be imported.
    """
    module = f"workers.{name}.controller"
    if name.replace("_", "-") not in _TAKEN:
        module = provided_by(provider).get(name, module)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        problem = f"the module of {name!r} cannot be imported: {error}"
        remedy = f"install what provider {provider!r} needs, or leave {name!r} out"
        raise ConfigurationFault("--controllers", problem, remedy) from error
