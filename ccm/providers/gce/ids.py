"""Provider IDs of Nodes, and the paths by which resources are compared."""

import re
from dataclasses import dataclass

SCHEME = "gce"
PROVIDER_IDS = re.compile(rf"{SCHEME}://.*")
NAME = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
"""What Google lets resources be called."""
PROJECT = "(?:[a-z][-a-z0-9.]*:)?[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
"""The ID of a project, maybe of a domain, or its number."""

_FORM = re.compile(rf"{SCHEME}://({PROJECT})/({NAME})/({NAME})")


@dataclass(frozen=True, slots=True)
class InstanceRef:
    """Where an instance is; a name may be there once a zone."""

    project: str
    zone: str
    name: str

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    @property
    def provider_id(self) -> str:
        """As upstream's controller and Google's kubelets write it."""
        return f"{SCHEME}://{self.project}/{self.zone}/{self.name}"


def instance_of(provider_id: str) -> InstanceRef | None:
    """The instance that a provider ID names; it has exactly three parts."""
    found = _FORM.fullmatch(provider_id)
    return InstanceRef(*found.groups()) if found else None


def path_of_url(url: str, project: str) -> str:
    """A URL as a path from `projects/` on.

    Google's own are of several hosts and versions; controllers write partial ones as well, from
    `zones/`, `regions/` or `global/` on, with a slash before it or without.
    """
    _, has_project, rest = url.partition("projects/")
    if has_project:
        return f"projects/{rest}"
    return f"projects/{project}/{url.lstrip('/')}" if url else ""


def last_part(url: str) -> str:
    """The name at the end of a URL."""
    return url.rpartition("/")[2]


def region_of(zone: str) -> str:
    """The region of a zone: `europe-west1` of `europe-west1-b`."""
    return zone.rpartition("-")[0]
