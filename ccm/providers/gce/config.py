"""The configuration: upstream's gce.conf as it is, and which keys of it have no effect here."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ccm.cloud.config_file import choice, of_form, secure_url
from ccm.cloud.sections import Sections, setting
from ccm.providers.gce.ids import NAME, PROJECT, last_part, path_of_url, region_of

log = logging.getLogger(__name__)

API_URL = "https://compute.googleapis.com"
API_PATH = "/compute/v1"
METADATA_HOST = "169.254.169.254"  # no name: anyone who answers DNS could have it
NETWORK_METADATA = "instance/network-interfaces/0/network"
LIBRARY = "nil"
"""The `token-url` of upstream's files that stands for the credentials of Google's libraries."""
SUBSETS, SKIP_GROUPS = "ILBSubsets", "SkipIGsManagement"
UNUSED = (
    "node-instance-prefix",
    "container-api-endpoint",
    "secondary-range-name",
    "regional",
    "multizone",
)
"""Keys that are known and need no warning: zones are all of the region, whatever they say."""


def _token_url(value: str) -> str:
    return value if value == LIBRARY else secure_url(value)


_URL = secure_url, "give https://host, or http on this host"
_PATH = of_form(rf".*projects/{PROJECT}/.*{NAME}|{NAME}", "give a name, or a URL with projects/")


@dataclass(frozen=True, slots=True)
class GlobalSection:
    """`[global]`."""

    project_id: str = setting("", of_form(PROJECT, "give the ID of a project"))
    network_project_id: str = setting("", of_form(PROJECT, "give the ID of a project"))
    local_zone: str = setting("", of_form(f"{NAME}-[a-z]", "give a zone as europe-west1-b"))
    network_name: str = setting("", _PATH)
    subnetwork_name: str = setting("", _PATH)
    stack_type: str = setting("", choice("IPV4", "IPV4_IPV6", "IPV6"))
    node_tags: tuple[str, ...] = setting((), of_form(NAME, "give a network tag"))
    api_endpoint: str = setting("", _URL)
    token_url: str = setting("", (_token_url, _URL[1]))
    token_body: str = setting("", is_secret=True)
    alpha_features: tuple[str, ...] = ()

    @property
    def api_url(self) -> str:
        """The API's address without its version."""
        return re.sub("/compute/v1$|/v1$", "", self.api_endpoint) or API_URL

    @property
    def network(self) -> str:
        """The network's name, with its project where that is given; empty without one."""
        found = re.fullmatch(f".*projects/({PROJECT})/global/networks/({NAME})", self.network_name)
        if found:
            return f"{found[1]}/{found[2]}"
        project = self.network_project_id
        return (
            f"{project}/{self.network_name}" if project and self.network_name else self.network_name
        )


SECTIONS: Mapping[str, type] = {"global": GlobalSection}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the cluster is. `network` and `subnetwork` are paths; empty where none is known."""

    project: str
    network_project: str
    region: str
    network: str
    subnetwork: str

    @property
    def is_shared_vpc(self) -> bool:
        return self.network_project != self.project

    def regional(self, collection: str, name: str = "") -> str:
        """The path of a regional collection, or of one in it."""
        return f"projects/{self.project}/regions/{self.region}/{collection}/{name}".rstrip("/")


def place_of(section: GlobalSection, metadata: Mapping[str, str]) -> Place:
    """Where the cluster is, by its file, and by the metadata server where that leaves it open."""
    project = section.project_id or metadata["project/project-id"]
    zone = section.local_zone or last_part(metadata["instance/zone"])
    network_project = section.network_project_id or project
    network = section.network_name or last_part(metadata.get(NETWORK_METADATA, ""))
    subnetwork, region = section.subnetwork_name, region_of(zone)
    if network and "/" not in network:
        network = f"projects/{network_project}/global/networks/{network}"
    if subnetwork and "/" not in subnetwork:
        subnetwork = f"projects/{network_project}/regions/{region}/subnetworks/{subnetwork}"
    paths = (path_of_url(item, network_project) for item in (network, subnetwork))
    return Place(project, network_project, region, *paths)


def missing_metadata(section: GlobalSection) -> list[str]:
    """What the metadata server has to say that the file does not."""
    asked = {
        "project/project-id": section.project_id,
        "instance/zone": section.local_zone,
        NETWORK_METADATA: section.network_name,
    }
    return [path for path, given in asked.items() if not given]


def read_config(content: bytes, path: str) -> GlobalSection:
    """The configuration; raises `ConfigurationFaults` with everything wrong in it."""

    def log_unknown(place: str, key: str, line: int, hint: str) -> None:
        extra = {"key": f"{place} {key}", "line": line, "hint": hint}
        log.warning("a key of the cloud configuration is not known", extra=extra)

    unused = {"global": UNUSED}
    sections = Sections(content, path, SECTIONS, unused=unused, on_unknown=log_unknown)
    section = sections.read(GlobalSection)
    if section.token_body and not section.token_url:
        sections.faults.add("[global] token-body", "is without token-url", "give both, or neither")
    for feature in section.alpha_features:
        if feature == SKIP_GROUPS:
            remedy = "remove it: instance groups of internal load balancers are made here"
            sections.faults.add("[global] alpha-features", f"has {feature}", remedy)
    if section.stack_type in ("IPV4_IPV6", "IPV6"):
        log.warning("load balancers get IPv4 alone", extra={"stack_type": section.stack_type})
    sections.faults.check()
    return section
