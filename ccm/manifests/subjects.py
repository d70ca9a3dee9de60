"""Which identities there are under given settings, and all that each may do."""

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ccm.controllers import is_enabled
from ccm.kube import identity, lease
from ccm.kube.events import event_rule
from ccm.model.rbac import PolicyRule, joined
from ccm.settings import Settings
from ccm.settings.migration import migration_of
from ccm.supervisor import nodes
from ccm.supervisor.informer import watch_rule
from ccm.supervisor.shards import wanted_workers
from workers.rbac import POLICY_RULES

NAME = "ccm-supervisor"
"""Of the supervisor's account, the Pods' controller and, before a colon, of roles.

Not `cloud-controller-manager`: who replaces an upstream one deletes what it had under that name.
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A service account, the process that acts as it, and what it may do."""

    name: str
    namespace: str
    process: str
    rights: tuple[PolicyRule, ...]


def subjects(settings: Settings, namespace: str) -> tuple[Subject, ...]:
    """The supervisor's account in `namespace`, then one for each duty that has its own."""
    leases = [settings.leader_elect_resource_name]
    if migration := migration_of(settings):
        settings = migration.narrow(settings)
        leases.append(migration.lease_name)
    wanted = sorted({*wanted_workers(settings).values()})
    own = [*_of_supervisor(settings, wanted, leases)]
    by_duty = {duty: [*_of_duty(duty, settings)] for duty in wanted}
    if not settings.use_service_account_credentials:
        everything = joined([*own, *(right for rights in by_duty.values() for right in rights)])
        return (Subject(NAME, namespace, "the supervisor and its workers", everything),)
    accounts = identity.ACCOUNTS
    own += identity.rights(accounts[duty] for duty in wanted)
    return (
        Subject(NAME, namespace, "the supervisor", joined(own)),
        *(
            Subject(
                accounts[duty],
                identity.NAMESPACE,
                f"the {duty.replace('_', '-')} worker",
                joined(by_duty[duty]),
            )
            for duty in wanted
        ),
    )


def _of_supervisor(
    settings: Settings, wanted: Iterable[str], leases: Iterable[str]
) -> Iterator[PolicyRule]:
    kinds = {nodes.PROJECTION.kind}
    for duty in wanted:
        kinds |= {
            want.kind for want in importlib.import_module(f"workers.{duty}.controller").PROJECTIONS
        }
    yield from map(watch_rule, sorted(kinds))
    yield event_rule(settings.leader_elect_resource_namespace)  # by Events on the Lease
    if settings.leader_elect:
        yield from lease.rights(settings.leader_elect_resource_namespace, leases)


def _of_duty(duty: str, settings: Settings) -> Iterator[PolicyRule]:
    for controller, rights in POLICY_RULES[duty].items():
        if is_enabled(controller, settings.controllers):
            yield from rights
