"""Leader migration: which controllers run under the main lease, and which under a second one.

While controllers move from another component to this one, both components hold the main lease of
their own, and contend for the second one, so that a migrated controller runs in one of them only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from ccm.controllers import KNOWN, enabled_provided
from ccm.errors import ConfigurationFault, ConfigurationFaults
from ccm.settings.flags import Settings
from ccm.settings.syntax import InvalidValue

COMPONENT = "cloud-controller-manager"
KIND = "LeaderMigrationConfiguration"
GROUP = "controllermanager.config.k8s.io"
VERSIONS = ("v1alpha1", "v1beta1", "v1")

LeaseRole = Literal["main", "migration"]


@dataclass(frozen=True, slots=True)
class LeaderMigration:
    """The second lease, and who runs what: pairs of controller and component (`*`: any).

    Upstream: `LeaderMigrationConfiguration` of `k8s.io/controller-manager`.
    """

    lease_name: str
    leaders: tuple[tuple[str, str], ...]

    def lease_role(self, controller: str) -> LeaseRole | None:
        """The lease that this controller of ours runs under; None: it runs elsewhere."""
        component = dict(self.leaders).get(controller)
        if component is None:
            return "main"
        return "migration" if component in (COMPONENT, "*") else None

    def without_unowned(self, settings: Settings) -> Settings:
        """The same settings without the controllers that run elsewhere."""
        names = (*KNOWN, *enabled_provided(settings.controllers))
        unowned = (name for name in names if self.lease_role(name) is None)
        return disable_controllers(settings, unowned)


def disable_controllers(settings: Settings, controllers: Iterable[str]) -> Settings:
    """The same settings with these controllers turned off, whatever `--controllers` says."""
    off = (f"-{name}" for name in controllers)
    return replace(settings, controllers=(*off, *settings.controllers))


DEFAULT = LeaderMigration(
    "cloud-provider-extraction-migration",
    (
        ("route-controller", "*"),
        ("service-controller", "*"),
        ("cloud-node-lifecycle-controller", "*"),
    ),
)
"""Upstream's, whose first two names are of kube-controller-manager and match none of ours."""


def read_leader_migration(settings: Settings) -> LeaderMigration | None:
    """The migration that the flags ask for; raises `ConfigurationFaults`."""
    if not (settings.enable_leader_migration and settings.leader_elect):
        return None
    path = settings.leader_migration_config
    migration = _read(path) if path else DEFAULT
    if migration.lease_name == settings.leader_elect_resource_name:
        problem = f"names the main lease {migration.lease_name!r} as the second one"
        raise ConfigurationFaults([_fault(path, problem, "give them different names")])
    return migration


def _fault(path: str, problem: str, remedy: str) -> ConfigurationFault:
    return ConfigurationFault("--leader-migration-config", f"{path} {problem}", remedy)


def _read(path: str) -> LeaderMigration:
    from ccm.settings.config_file import read_yaml  # imports YAML

    try:
        content = read_yaml(path)
    except InvalidValue as error:
        raise ConfigurationFaults([_fault(path, error.problem, error.remedy)]) from error
    if problems := list(_problems(content)):
        raise ConfigurationFaults([_fault(path, *problem) for problem in problems])
    leaders = content.get("controllerLeaders") or []
    return LeaderMigration(
        content["leaderName"], tuple((item["name"], item["component"]) for item in leaders)
    )


def _problems(content: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(content, dict):
        yield "is not a mapping", f"write a {KIND}"
        return
    group, _, version = str(content.get("apiVersion")).rpartition("/")
    fields = {"kind", "apiVersion", "leaderName", "controllerLeaders"}
    if content.get("kind") != KIND:
        yield f"has not the kind {KIND}", "correct it"
    if group != GROUP or version not in VERSIONS:
        yield "has an unknown apiVersion", f"use {GROUP}/v1"
    elif version != "v1":
        fields.add("resourceLock")
        if content.get("resourceLock") != "leases":
            yield "has a resourceLock other than leases", "write resourceLock: leases"
    for name in sorted(content.keys() - fields):
        yield f"has an unknown field {name!r}", "take it out"
    if not _is_name(content.get("leaderName")):
        yield "has no leaderName", "name the second Lease"
    leaders = content.get("controllerLeaders") or []
    if not isinstance(leaders, list):
        yield "has no list of controllerLeaders", "write entries with name and component"
        return
    for number, item in enumerate(leaders):
        if not isinstance(item, dict) or item.keys() != {"name", "component"}:
            yield f"has more or less than name and component in entry {number}", "give just these"
        elif not all(_is_name(value) for value in item.values()):
            yield f"has an empty name or component in entry {number}", "fill it in"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)
