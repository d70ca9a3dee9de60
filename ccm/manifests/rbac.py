"""Service accounts, roles and bindings: exactly the rights of each subject, and no more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ccm.manifests.subjects import NAME, Subject
from ccm.model.objects import Json
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings

GROUP = "rbac.authorization.k8s.io"
DELEGATOR = "auth-delegator"
"""Built-in: ask who somebody is that reads our HTTPS endpoints, and whether he may."""

CA_READER = "extension-apiserver-authentication-reader"
"""Built-in: read which CAs sign for clients of the API server, and thus for ours."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object, and what a reader should know of it, a line an entry."""

    body: Json
    notes: Sequence[str] = ()


def rbac(subjects: Iterable[Subject], settings: Settings) -> Iterator[Document]:
    """The accounts and their rights; the first subject is the supervisor."""
    supervisor, *workers = subjects
    yield _account(supervisor, is_for_pods=True)
    yield from _grants(supervisor)
    if settings.secure_port:
        yield from _delegation(supervisor, settings)
    for worker in workers:
        yield _account(worker, is_for_pods=False)
        yield from _grants(worker)


def _account(subject: Subject, is_for_pods: bool) -> Document:
    body = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(subject.name, subject.namespace),
        "automountServiceAccountToken": is_for_pods,
    }
    return Document(body, [f"Who {subject.process} is to the API server."])


def _grants(subject: Subject) -> Iterator[Document]:
    name = NAME if subject.name == NAME else f"{NAME}:{subject.name}"
    for namespace, rights in groupby(subject.rights, lambda right: right.namespace):
        kind = "Role" if namespace else "ClusterRole"
        role, notes = _role(kind, metadata(name, namespace), list(rights))
        where = f"in {namespace}" if namespace else "in the whole cluster"
        yield Document(role, [f"What {subject.process} may do {where}:", *notes])
        yield Document(_binding(metadata(name, namespace), kind, name, subject))


def _delegation(subject: Subject, settings: Settings) -> Iterator[Document]:
    meta = metadata(f"{NAME}:{DELEGATOR}")
    body = _binding(meta, "ClusterRole", f"system:{DELEGATOR}", subject)
    yield Document(body, ["The HTTPS endpoints ask the API server who may read them."])
    if not settings.authentication_skip_lookup:
        meta = metadata(f"{NAME}:{CA_READER}", "kube-system")
        yield Document(_binding(meta, "Role", CA_READER, subject))


def _role(kind: str, meta: Json, rights: Sequence[PolicyRule]) -> tuple[Json, list[str]]:
    rules = [
        {
            "apiGroups": [right.group],
            "resources": [right.resource],
            **({"resourceNames": [*right.names]} if right.names else {}),
            "verbs": [*right.verbs],
        }
        for right in rights
    ]
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, "rules": rules}
    purposes = [(right.resource, why) for right in rights for why in right.purposes]
    return body, [*dict.fromkeys(f"  {resource}: {why}" for resource, why in purposes)]


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
    """The name of an object, and that it is one of ours."""
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {"app.kubernetes.io/name": NAME},
    }
