"""The annotations of Services by cloud; as a module it prints the tables of `docs/annotations.md`.

Which there are, of which kind of load balancer, and which reach beyond the Service is in the code.
"""

import csv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ccm.providers.aws.elb import annotations as aws
from ccm.providers.azure.lb import annotations as azure
from ccm.providers.digitalocean.lb import annotations as digitalocean
from ccm.providers.gce.lb import request as gce
from ccm.providers.incus.lb import request as incus
from ccm.providers.openstack.lb import annotations as openstack

ROWS = Path(__file__).with_name("annotations.tsv")


@dataclass(frozen=True, slots=True)
class Row:
    """One annotation; `name` is without the prefix."""

    cloud: str
    name: str
    values: str
    default: str
    example: str
    meaning: str


@dataclass(frozen=True, slots=True)
class CloudAnnotations:
    """What the code of a cloud says: the prefix, the names, those that reach beyond the Service."""

    title: str
    prefix: str
    names: frozenset[str]
    outreaching: Collection[str]


CLOUDS = {
    "aws": CloudAnnotations(
        "AWS",
        aws.PREFIX,
        frozenset[str]().union(*aws.SUPPORTED_ANNOTATIONS.values()),
        aws.PRIVILEGED,
    ),
    "azure": CloudAnnotations("Azure", azure.PREFIX, azure.KNOWN, azure.PRIVILEGED),
    "openstack": CloudAnnotations(
        "OpenStack", openstack.PREFIX, openstack.KNOWN, openstack.PRIVILEGED
    ),
    "digitalocean": CloudAnnotations(
        "DigitalOcean", digitalocean.PREFIX, digitalocean.KNOWN, digitalocean.PRIVILEGED
    ),
    "incus": CloudAnnotations(
        "Incus",
        incus.PREFIX,
        frozenset(name.removeprefix(incus.PREFIX) for name in incus.KNOWN),
        (),
    ),
    "gce": CloudAnnotations("Google Compute Engine", "", gce.KNOWN, gce.PRIVILEGED),
}


def rows() -> list[Row]:
    with ROWS.open() as file:
        return [Row(**row) for row in csv.DictReader(file, delimiter="\t")]


def tables() -> Iterator[str]:
    """A heading and a table for each cloud."""
    for cloud, known in CLOUDS.items():
        begin = f"All begin with `{known.prefix}`" if known.prefix else "The names are whole"
        yield f"## {known.title}\n\n{begin}.\n"
        yield "| name | values | default | example | what it does |\n|---|---|---|---|---|"
        for row in rows():
            if row.cloud == cloud:
                yield _line(row, known)
        yield ""


def _line(row: Row, known: CloudAnnotations) -> str:
    marks = [row.meaning]
    if known is CLOUDS["aws"]:
        kinds = [kind for kind, names in aws.SUPPORTED_ANNOTATIONS.items() if row.name in names]
        marks += [f"*{kinds[0]} only*"] if len(kinds) == 1 else []
    marks += ["**restricted**"] if row.name in known.outreaching else []
    cells = (f"`{row.name}`", row.values, row.default, f"`{row.example}`", "; ".join(marks))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(tables()), end="")
