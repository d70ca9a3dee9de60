"""Grains of rights: what rendered manifests grant, and what accounts were seen to use."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import yaml
from click.testing import CliRunner

from ccm.cli.main import main
from tests.support.kube.access import RBAC, REVIEWS
from tests.support.kube.audit import AuditEntry
from tests.support.kube.cluster import RealCluster
from tests.support.running import Json, wait_for


@dataclass(frozen=True, slots=True)
class Grain:
    """One verb on one resource for one account; an empty namespace or name means all."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def allows(self, entry: AuditEntry) -> bool:
        resource = f"{entry.resource}/{entry.subresource}".rstrip("/")
        return (
            user(self.account) == entry.user
            and (self.verb, self.group, self.resource) == (entry.verb, entry.group, resource)
            and self.namespace in ("", entry.namespace)
            and self.name in ("", entry.name)
        )


def user(account: str) -> str:
    return f"system:serviceaccount:kube-system:{account}"


def rendered(*arguments: str) -> str:
    """What `ccm-supervisor manifests` prints."""
    result = CliRunner().invoke(main, ["manifests", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def objects(text: str, *kinds: str) -> list[Json]:
    return [body for body in yaml.load_all(text, yaml.CSafeLoader) if body["kind"] in kinds]


def granted(text: str, cluster: RealCluster) -> dict[Grain, str]:
    """Every grain, and the path of the role that has it, ours or one of the API server's own."""
    grains: dict[Grain, str] = {}
    for binding in objects(text, "RoleBinding", "ClusterRoleBinding"):
        role, namespace = binding["roleRef"], binding["metadata"].get("namespace", "")
        path = role_path(role["kind"], namespace, role["name"])
        (subject,) = binding["subjects"]
        for rule in cluster.request("GET", path).expect().body["rules"]:
            grains |= dict.fromkeys(_grains(subject["name"], namespace, rule), path)
    return grains


def role_path(kind: str, namespace: str, name: str) -> str:
    where = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    return f"{where}/{kind.lower()}s/{name}"


def _grains(account: str, namespace: str, rule: Json) -> Iterator[Grain]:
    for resource in rule["resources"]:
        for verb in rule["verbs"]:
            for name in rule.get("resourceNames", [""]):
                (group,) = rule["apiGroups"]
                yield Grain(account, verb, group, resource, namespace, name)


def is_allowed(cluster: RealCluster, grain: Grain) -> bool:
    """What the API server says of it now; it learns of new roles with a delay."""
    resource, _, subresource = grain.resource.partition("/")
    attributes = {
        "verb": grain.verb,
        "group": grain.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": grain.namespace,
        "name": grain.name,
    }
    spec = {"user": user(grain.account), "resourceAttributes": attributes}
    answer = cluster.request("POST", REVIEWS, {"spec": spec}).expect()
    return bool(answer.body["status"]["allowed"])


@contextmanager
def applied(cluster: RealCluster, text: str) -> Iterator[dict[Grain, str]]:
    """The manifests are in force, with what they grant; afterwards nothing of them is."""
    cluster.kubectl("apply", "-f", "-", stdin=text)
    grains = granted(text, cluster)
    wait_for("rights are in force", lambda: all(is_allowed(cluster, grain) for grain in grains))
    try:
        yield grains
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text)
        wait_for("they are not", lambda: not any(is_allowed(cluster, grain) for grain in grains))


@contextmanager
def removed(cluster: RealCluster, grain: Grain, path: str) -> Iterator[None]:
    """The role at `path` is without this grain for a while."""
    role = cluster.request("GET", path).expect().body
    del role["metadata"]["resourceVersion"]
    cluster.request(
        "PUT", path, {**role, "rules": [*_rules_without(grain, role["rules"])]}
    ).expect()
    wait_for("it is removed", lambda: not is_allowed(cluster, grain))
    try:
        yield
    finally:
        cluster.request("PUT", path, role).expect()
        wait_for("it is back", lambda: is_allowed(cluster, grain))


def _rules_without(grain: Grain, rules: list[Json]) -> Iterator[Json]:
    for rule in rules:
        names = rule.get("resourceNames", [""])
        is_it = grain.group in rule["apiGroups"] and grain.resource in rule["resources"]
        if not (is_it and grain.verb in rule["verbs"] and grain.name in names):
            yield rule
            continue
        if verbs := [verb for verb in rule["verbs"] if verb != grain.verb]:
            yield {**rule, "verbs": verbs}
        if rest := [name for name in names if name != grain.name]:
            yield {**rule, "verbs": [grain.verb], "resourceNames": rest}
