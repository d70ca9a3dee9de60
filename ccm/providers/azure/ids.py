"""IDs of Resource Manager's resources, which mean the same in any case of letters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ccm.http import path_of
from ccm.model.objects import Json, mapping, text

SCHEME = "azure"
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*", re.IGNORECASE)
COMPUTE, NETWORK = "Microsoft.Compute", "Microsoft.Network"
MAX_ID = 4096  # characters

_PART = r"(?!\.+(?:/|$))[^/\s?#%]+"  # and no way up
_ID = re.compile(
    rf"/subscriptions/({_PART})/resourceGroups/({_PART})/providers/({_PART})((?:/{_PART}/{_PART})+)",
    re.IGNORECASE,
)
_NAME = r"(?!\.+/)[-\w.()]{1,90}"
_MACHINE = re.compile(
    rf"/subscriptions/{_PART}/resourceGroups/{_NAME}/providers/Microsoft\.Compute/"
    rf"(?:virtualMachines/{_PART}|virtualMachineScaleSets/{_PART}/virtualMachines/[0-9]+)",
    re.IGNORECASE,
)
_GROUP = re.compile(rf"(/resourceGroups/)({_PART})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scope:
    """A resource group, where resources are named; without a `group` all of the subscription."""

    subscription: str
    group: str

    def id(self, provider: str, *names: str) -> str:
        """The ID of a resource, or of a list: types and names in turn."""
        group = ("resourceGroups", self.group) if self.group else ()
        return path_of("subscriptions", self.subscription, *group, "providers", provider, *names)

    def machines(self) -> str:
        """The list of its virtual machines."""
        return self.id(COMPUTE, "virtualMachines")


def scope_of(resource_id: str) -> Scope | None:
    """Where a resource is; None for what is no ID."""
    match = _ID.fullmatch(resource_id) if len(resource_id) <= MAX_ID else None
    return Scope(match[1].lower(), match[2].lower()) if match else None


def same(one: str, other: str) -> bool:
    """Whether two IDs or names mean the same."""
    return one.lower() == other.lower()


def id_of(record: object) -> str:
    """The ID of a record, or of a reference to one."""
    return text(mapping(record).get("id"))


def key_of(record: object) -> str:
    """The same, comparable."""
    return id_of(record).lower()


def name_of(resource_id: str) -> str:
    """The last part of an ID."""
    return resource_id.rpartition("/")[2]


def properties_of(record: Mapping[str, object]) -> Json:
    """What a resource is like."""
    return dict(mapping(record.get("properties")))


def machine_of(provider_id: str) -> str:
    """The ID of the machine that a provider ID names, comparable; empty when it names none."""
    scheme, _, resource_id = provider_id.partition("://")
    is_ours = scheme.lower() == SCHEME and _MACHINE.fullmatch(resource_id)
    return resource_id.lower() if is_ours else ""


def provider_id(resource_id: str) -> str:
    """`azure://` and the ID of a machine with its group in lower case, as upstream writes it."""
    return f"{SCHEME}://{_GROUP.sub(lambda found: found[1] + found[2].lower(), resource_id)}"
