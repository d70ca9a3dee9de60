"""All settings of one supervisor and its workers, and the flags that they come from."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from ccm.settings.declaration import Flag, flag_of
from ccm.settings.groups.cluster import CloudFlags, ElectionFlags, KubeFlags
from ccm.settings.groups.controllers import ControllerFlags, NodeFlags
from ccm.settings.groups.process import LogFlags, ProcessFlags
from ccm.settings.groups.serving import (
    AuthenticationFlags,
    AuthorizationFlags,
    ServingFlags,
    WebhookFlags,
)

GROUPS = {
    "Cloud": CloudFlags,
    "Kubernetes API": KubeFlags,
    "Leader election": ElectionFlags,
    "Controllers": ControllerFlags,
    "Node controllers": NodeFlags,
    "HTTPS server": ServingFlags,
    "Authentication": AuthenticationFlags,
    "Authorization": AuthorizationFlags,
    "Webhooks": WebhookFlags,
    "Processes": ProcessFlags,
    "Logging": LogFlags,
}
"""Headings of `--help` and of the documentation, in their order."""


@dataclass(frozen=True)
class Settings(
    CloudFlags,
    KubeFlags,
    ElectionFlags,
    ControllerFlags,
    NodeFlags,
    ServingFlags,
    AuthenticationFlags,
    AuthorizationFlags,
    WebhookFlags,
    ProcessFlags,
    LogFlags,
):
    """One value a flag, named like it with underscores; durations are seconds."""


def flags() -> Iterator[Flag]:
    """Every flag, group by group."""
    for group, declared in GROUPS.items():
        for item in fields(declared):
            yield flag_of(item, group)
