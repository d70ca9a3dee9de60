"""Faults that the API server shows: the way to it, rights, the Lease, other controllers."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace

from ccm.checks import site as looking
from ccm.checks.look import api
from ccm.model.objects import Json
from tests.check.altered import Altered
from tests.check.row import Ground, Row, flags
from tests.check.world import grant, needed_rights
from tests.kube.credentials import create_credentials

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PODS = "/api/v1/namespaces/kube-system/pods"
ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
UPSTREAM = "host-1_6d9f4b7e-6f0e-4c0e-9d0a-0a1b2c3d4e5f"


def other_kubeconfig(ground: Ground, cluster: Json, user: Json | None = None) -> Sequence[str]:
    """The supervisor's, with other values."""
    config = json.loads(ground.world.where.kubeconfig.read_text())
    config["clusters"][0]["cluster"] |= cluster
    config["users"][0]["user"] |= user or {}
    path = ground.directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return [f"--kubeconfig={path}"]


def nobody_listens(ground: Ground) -> Iterator[Sequence[str]]:
    yield other_kubeconfig(ground, {"server": "https://127.0.0.1:9"})


def name_is_unknown(ground: Ground) -> Iterator[Sequence[str]]:
    yield other_kubeconfig(ground, {"server": "https://api.invalid:6443"})


def other_authority(ground: Ground) -> Iterator[Sequence[str]]:
    other = create_credentials(ground.directory / "other").ca_file
    yield other_kubeconfig(ground, {"certificate-authority": str(other)})


def token_is_wrong(ground: Ground) -> Iterator[Sequence[str]]:
    yield other_kubeconfig(ground, {}, {"token": "wrong"})


def altered(ground: Ground, path: str, status: int, body: Json) -> Iterator[Sequence[str]]:
    """The API server gives another answer to requests for `path`."""
    world = ground.world
    with Altered(world.cluster, {path: (status, body)}) as proxy:
        yield [f"--kubeconfig={proxy.kubeconfig(world.where.kubeconfig)}"]


def no_leases(ground: Ground) -> Iterator[Sequence[str]]:
    yield from altered(ground, "/apis/coordination.k8s.io/v1", 404, {})


def old_version(ground: Ground) -> Iterator[Sequence[str]]:
    yield from altered(ground, "/version", 200, {"gitVersion": "v1.19.3"})


def services_fail(ground: Ground) -> Iterator[Sequence[str]]:
    yield from altered(ground, "/api/v1/services", 500, {"reason": "InternalError"})


def clock_is_slow(ground: Ground) -> Iterator[Sequence[str]]:
    slow = SimpleNamespace(time=lambda: datetime.now(UTC).timestamp() - 600)
    ground.patch.setattr(api, "time", slow)
    ground.patch.setattr(looking, "time", slow)
    yield ()


def no_addresses(ground: Ground) -> Iterator[Sequence[str]]:
    """An identity that has every right but to write the status of nodes."""
    cluster = ground.world.cluster
    kubeconfig = cluster.service_account_kubeconfig("kube-system", "short-of-rights")
    rights = [right for right in needed_rights() if right.resource != "nodes/status"]
    grant(cluster, "system:serviceaccount:kube-system:short-of-rights", rights)
    yield [f"--kubeconfig={kubeconfig}"]


def account_is_missing(ground: Ground) -> Iterator[Sequence[str]]:
    yield ["--use-service-account-credentials", "--controllers=-service,-route,-volume-label"]


def account_has_no_rights(ground: Ground) -> Iterator[Sequence[str]]:
    with ground.world.with_object(ACCOUNTS, {"metadata": {"name": "cloud-node-controller"}}):
        yield ["--use-service-account-credentials", "--controllers=-service,-route,-volume-label"]


def held(ground: Ground, name: str, holder: str) -> Iterator[Sequence[str]]:
    """A Lease that somebody renewed just now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": now}
    with ground.world.with_object(LEASES, {"metadata": {"name": name}, "spec": spec}):
        yield [f"--leader-elect-resource-name={name}"]


def upstream_leads(ground: Ground) -> Iterator[Sequence[str]]:
    yield from held(ground, "planted", UPSTREAM)


def stranger_leads(ground: Ground) -> Iterator[Sequence[str]]:
    yield from held(ground, "planted", "kube-vip-1")


def other_lease_is_alive(ground: Ground) -> Iterator[Sequence[str]]:
    for _ in held(ground, "nimbus-cloud-controller-manager", UPSTREAM):
        yield ()


def pod(name: str, *words: str, image: str = "example/nimbus:v1", **labels: str) -> Json:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": image, "command": [*words]}],
        },
    }


def pods(ground: Ground, *bodies: Json) -> Iterator[Sequence[str]]:
    """In kube-system; without a controller manager, their service account has to be made."""
    with ExitStack() as held:
        account = {"metadata": {"name": "default"}}
        held.enter_context(ground.world.with_object(ACCOUNTS, account))
        for body in bodies:
            held.enter_context(ground.world.with_object(PODS, body))
        yield ()


def same_lease(ground: Ground) -> Iterator[Sequence[str]]:
    yield from pods(ground, pod("planted", "/bin/nimbus-cloud-controller-manager"))


def own_lease(ground: Ground) -> Iterator[Sequence[str]]:
    image = "registry.example/cloud-controller-manager:v1"
    yield from pods(ground, pod("planted", "--leader-elect-resource-name=other", image=image))


def in_tree(ground: Ground) -> Iterator[Sequence[str]]:
    yield from pods(ground, pod("planted", "kube-controller-manager", "--cloud-provider=nimbus"))


def replicas_without_election(ground: Ground) -> Iterator[Sequence[str]]:
    ours = {"app.kubernetes.io/name": "ccm-supervisor"}
    for _ in pods(ground, *(pod(name, "ccm-supervisor", **ours) for name in ("one", "two"))):
        yield ["--leader-elect=false"]


ROWS = (
    Row(
        "nobody listens at the API server's address",
        "api-server",
        "--kubeconfig: the API server at https://127.0.0.1:9 does not answer",
        "check the address, and that the API server is running",
        nobody_listens,
    ),
    Row(
        "the API server's name is not known",
        "api-server",
        "--kubeconfig: the name in https://api.invalid:6443 is not known here",
        "the DNS of this host",
        name_is_unknown,
    ),
    Row(
        "the kubeconfig has another cluster's CA",
        "api-server",
        "no trusted connection",
        "give the CA of this API server",
        other_authority,
    ),
    Row(
        "the token is not accepted",
        "api-server",
        "does not accept these credentials (401)",
        "renew the token or client certificate",
        token_is_wrong,
    ),
    Row(
        "the kubeconfig is not there",
        "api-server",
        "--kubeconfig: /nowhere/kubeconfig cannot be read",
        "give the path of a kubeconfig that this user may read",
        flags("--kubeconfig=/nowhere/kubeconfig"),
    ),
    Row(
        "the API server serves no Leases",
        "api-kinds",
        "does not serve: create of leases.coordination.k8s.io, get, update of leases",
        "see --runtime-config of kube-apiserver",
        no_leases,
    ),
    Row(
        "the API server is older than what we know",
        "api-kinds",
        "Kubernetes v1.19.3; ccm-supervisor",
        "use versions that fit",
        old_version,
        state="warning",
    ),
    Row(
        "the API server fails to list Services",
        "services",
        "500 InternalError",
        "see the log of the API server",
        services_fail,
    ),
    Row(
        "this machine's clock is ten minutes slow",
        "clock",
        "this clock is 10m behind the API server's",
        "let a time service",
        clock_is_slow,
    ),
    Row(
        "a right is missing",
        "rights",
        "may not patch nodes/status: addresses; condition NetworkUnavailable",
        "apply what 'ccm-supervisor manifests' prints",
        no_addresses,
    ),
    Row(
        "a worker's account is missing",
        "service-accounts",
        "no service account in kube-system: cloud-node-controller",
        "apply what 'ccm-supervisor manifests' prints",
        account_is_missing,
        also=frozenset({"rights", "flags"}),
        identity="admin",
    ),
    Row(
        "a worker's account has no rights",
        "rights",
        "the node worker (system:serviceaccount:kube-system:cloud-node-controller) may not patch",
        "apply what 'ccm-supervisor manifests' prints",
        account_has_no_rights,
        also=frozenset({"flags"}),
        identity="admin",
    ),
    Row(
        "the namespace of the Lease is missing",
        "lease",
        "there is no namespace nowhere",
        "kubectl create namespace nowhere",
        flags("--leader-elect-resource-namespace=nowhere"),
        identity="admin",
    ),
    Row(
        "no election although somebody leads",
        "lease",
        "--leader-elect is false, and",
        "set --leader-elect=true, or stop the other one first",
        flags("--leader-elect=false"),
    ),
    Row(
        "an upstream controller leads",
        "lease",
        f"is held by {UPSTREAM}, which is alive and a real-cluster: a start stands by",
        "stop that one",
        upstream_leads,
        state="warning",
        also=frozenset({"other-controllers"}),  # the Lease of the supervisor at work
        identity="admin",
    ),
    Row(
        "something else holds the Lease",
        "lease",
        "no cloud controller manager by its name",
        "--leader-elect-resource-name",
        stranger_leads,
        state="warning",
        also=frozenset({"other-controllers"}),  # the Lease of the supervisor at work
        identity="admin",
    ),
    Row(
        "another Lease is alive",
        "other-controllers",
        "Lease nimbus-cloud-controller-manager is held by",
        "stop it, unless it looks after the nodes of another cloud",
        other_lease_is_alive,
        state="warning",
        identity="admin",
    ),
    Row(
        "another controller waits for the same Lease",
        "other-controllers",
        "Pod planted is a cloud-controller-manager: it and a start here exclude each other",
        "stop it before this one starts",
        same_lease,
        state="warning",
        identity="admin",
    ),
    Row(
        "another controller has a Lease of its own",
        "other-controllers",
        "Pod planted is a cloud-controller-manager with another Lease, other: both would act",
        "stop it before this one starts",
        own_lease,
        identity="admin",
    ),
    Row(
        "kube-controller-manager runs cloud controllers",
        "other-controllers",
        "Pod planted runs kube-controller-manager with --cloud-provider=nimbus",
        "set --cloud-provider=external there",
        in_tree,
        identity="admin",
    ),
    Row(
        "several replicas of ours without election",
        "other-controllers",
        "--leader-elect is false, and there are 2 replicas of ours: all would act",
        "set --leader-elect=true, or run one replica only",
        replicas_without_election,
        also=frozenset({"lease"}),
        identity="admin",
    ),
)
