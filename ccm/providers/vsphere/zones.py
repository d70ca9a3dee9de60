"""The zone and region of a machine, as upstream takes them from the tags of what it is in.

What is labelled so has volumes that are bound to these very labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ccm.model.objects import is_label_value
from ccm.providers.vsphere.inventory import Inventory, Machine, Place, machine_parents
from ccm.providers.vsphere.tags import Tag


@dataclass(frozen=True, slots=True)
class Topology:
    """Both, or neither and why not."""

    region: str = ""
    zone: str = ""
    why_not: str = ""


class _Unclear(Exception):
    """A tag cannot be followed; the text says which."""


def chains_of(inventory: Inventory, machine: Machine) -> list[list[Place]]:
    """What it is in, from the inside out: by its host, by its resource pool, by its folders."""
    host, pool, folder = machine_parents(machine)
    itself = Place("VirtualMachine", machine.moid, machine.name, folder)
    return [
        [*inventory.chain(host)],
        [*inventory.chain(pool)],
        [itself, *inventory.chain(folder)],
    ]


def topology_of(
    chains: Iterable[Sequence[Place]], tags: Mapping[str, list[Tag]], region: str, zone: str
) -> Topology:
    """By the first chain that has tags of both categories."""
    try:
        for chain in chains:
            found = _follow(chain, tags, (region, zone))
            if len(found) == len({region, zone}):
                return Topology(found[region], found[zone])
    except _Unclear as unclear:
        return Topology(why_not=str(unclear))
    return Topology(why_not=f"nothing that it is in has tags of both {region} and {zone}")


def _follow(
    chain: Sequence[Place], tags: Mapping[str, list[Tag]], categories: Sequence[str]
) -> dict[str, str]:
    """What its places say, until both are known: further out counts, up to what completes them."""
    found: dict[str, str] = {}
    for place in chain:
        reported = {
            category: name
            for category in dict.fromkeys(categories)
            if (name := _name(place, tags.get(place.moid, ()), category))
        }
        if found.keys() | reported.keys() >= set(categories):
            return reported | found
        found |= reported
    return found


def _name(place: Place, tags: Iterable[Tag], category: str) -> str:
    """The one tag of this category that a place has.

    Two are unclear, and so is one that is no label, or that vCenter lists and does not find.
    """
    listed, where = list(tags), f"{place.kind} {place.name}"
    if not all(tag.category for tag in listed):
        raise _Unclear(f"{where} has a tag that vCenter does not find")
    names = sorted(tag.name for tag in listed if tag.category == category)
    if len(names) > 1:
        raise _Unclear(f"{where} has {category} {', '.join(names)}")
    if names and not is_label_value(names[0]):
        raise _Unclear(f"tag {names[0]!r} of {category} on {where} cannot be the value of a label")
    return names[0] if names else ""
