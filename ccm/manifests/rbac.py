"""Service accounts under given settings, and their least privileges as RBAC manifests."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ccm.controllers import BY_PACKAGE, is_enabled, load_controller
from ccm.kube import cluster_identity, lease, service_accounts
from ccm.kube.service_accounts import account_name
from ccm.model.objects import Json, watched_kind
from ccm.model.rbac import PolicyRule, event_rule, merge_rules
from ccm.settings import Settings
from ccm.settings.leader_migration import read_leader_migration
from ccm.supervisor import nodes
from ccm.supervisor.informer import watch_rule
from ccm.worker_names import process_name, wanted_workers

APP_NAME = "ccm-supervisor"
"""Of the supervisor's account, its workload and, before a colon, of roles.

Not `cloud-controller-manager`: who replaces an upstream one deletes what it had under that name.
"""

GROUP = "rbac.authorization.k8s.io"
DELEGATOR = "auth-delegator"
"""Built-in ClusterRole: token and access reviews for readers of our HTTPS endpoints."""

CA_READER = "extension-apiserver-authentication-reader"
"""Built-in Role: read the CAs of the API server's clients, which may read from us, too."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A service account, the process that acts as it, and its rules, sorted by namespace."""

    name: str
    namespace: str
    process: str
    rules: tuple[PolicyRule, ...]


def subjects(settings: Settings, namespace: str) -> tuple[Subject, ...]:
    """The supervisor's account in `namespace`, then one for each worker that has its own."""
    leases = [settings.leader_elect_resource_name]
    if migration := read_leader_migration(settings):
        settings = migration.without_unowned(settings)
        leases.append(migration.lease_name)
    by_worker = worker_rules(settings)
    wanted = [*by_worker]
    own = [*_of_supervisor(settings, wanted, leases)]
    if not settings.use_service_account_credentials:
        everything = merge_rules([*own, *(rule for rules in by_worker.values() for rule in rules)])
        return (Subject(APP_NAME, namespace, "the supervisor and its workers", everything),)
    own += service_accounts.policy_rules(map(account_name, wanted))
    supervisor = Subject(APP_NAME, namespace, "the supervisor", merge_rules(own))
    return supervisor, *(
        Subject(account_name(worker), service_accounts.NAMESPACE, process_name(worker), rules)
        for worker, rules in by_worker.items()
    )


def worker_rules(settings: Settings) -> dict[str, tuple[PolicyRule, ...]]:
    """Controller of each worker that is wanted → what it needs to be allowed."""
    if migration := read_leader_migration(settings):
        settings = migration.without_unowned(settings)
    wanted = sorted({*wanted_workers(settings).values()})
    return {worker: merge_rules(_of_worker(worker, settings)) for worker in wanted}


def _of_supervisor(
    settings: Settings, wanted: Iterable[str], leases: Iterable[str]
) -> Iterator[PolicyRule]:
    kinds = {nodes.NODE_PROJECTION.kind}
    for worker in wanted:
        controller = load_controller(worker, settings.cloud_provider)
        kinds |= {watched_kind(projection.kind) for projection in controller.PROJECTIONS}
    yield from map(watch_rule, sorted(kinds))
    yield event_rule(settings.leader_elect_resource_namespace)  # by Events on the Lease
    yield cluster_identity.POLICY_RULE
    if settings.leader_elect:
        yield from lease.policy_rules(settings.leader_elect_resource_namespace, leases)


def _of_worker(worker: str, settings: Settings) -> Iterator[PolicyRule]:
    if worker not in BY_PACKAGE:
        yield from load_controller(worker, settings.cloud_provider).POLICY_RULES
        return
    for controller, rules in BY_PACKAGE[worker].rules.items():
        if is_enabled(controller, settings.controllers):
            yield from rules


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, and comments for its reader, a line an entry."""

    body: Json
    comments: Sequence[str] = ()


def rbac(subjects: Iterable[Subject], settings: Settings) -> Iterator[Manifest]:
    """Accounts, roles and bindings; the first subject is the supervisor."""
    supervisor, *workers = subjects
    yield _account(supervisor, is_for_pods=True)
    yield from _grants(supervisor)
    if settings.secure_port:
        yield from _delegation(supervisor, settings)
    for worker in workers:
        yield _account(worker, is_for_pods=False)
        yield from _grants(worker)


def _account(subject: Subject, is_for_pods: bool) -> Manifest:
    body = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(subject.name, subject.namespace),
        "automountServiceAccountToken": is_for_pods,
    }
    return Manifest(body, [f"The account of {subject.process} at the API server."])


def _grants(subject: Subject) -> Iterator[Manifest]:
    name = APP_NAME if subject.name == APP_NAME else f"{APP_NAME}:{subject.name}"
    for namespace, rules in groupby(subject.rules, lambda rule: rule.namespace):
        kind, meta = "Role" if namespace else "ClusterRole", metadata(name, namespace)
        granted = list(rules)
        body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta}
        where = f"in {namespace}" if namespace else "in the whole cluster"
        purposes = (f"  {rule.resource}: {why}" for rule in granted for why in rule.purposes)
        comments = dict.fromkeys((f"What {subject.process} may do {where}:", *purposes))
        yield Manifest({**body, "rules": [rule_body(rule) for rule in granted]}, [*comments])
        yield Manifest(_binding(meta, kind, name, subject))


def _delegation(subject: Subject, settings: Settings) -> Iterator[Manifest]:
    meta = metadata(f"{APP_NAME}:{DELEGATOR}")
    body = _binding(meta, "ClusterRole", f"system:{DELEGATOR}", subject)
    yield Manifest(body, ["The HTTPS endpoints ask the API server who may read them."])
    if not settings.authentication_skip_lookup:
        meta = metadata(f"{APP_NAME}:{CA_READER}", "kube-system")
        yield Manifest(_binding(meta, "Role", CA_READER, subject))


def rule_body(rule: PolicyRule) -> Json:
    """A rule as a Role has it."""
    return {
        "apiGroups": [rule.group],
        "resources": [rule.resource],
        **({"resourceNames": [*rule.names]} if rule.names else {}),
        "verbs": [*rule.verbs],
    }


def _binding(meta: Json, kind: str, role: str, subject: Subject) -> Json:
    who = {"kind": "ServiceAccount", "name": subject.name, "namespace": subject.namespace}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": f"{kind}Binding",
        "metadata": meta,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [who],
    }


def metadata(name: str, namespace: str = "") -> Json:
    """The metadata of an object of ours."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {"app.kubernetes.io/name": APP_NAME},
    }
