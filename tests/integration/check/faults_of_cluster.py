"""Faults that the API server shows: the way to it, permissions, the Lease, other controllers."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

from aiohttp import web

from ccm.checks import api_server
from ccm.model.objects import Json
from tests.integration.check.planting import Ground, fails, flags, planted, warns
from tests.integration.check.world import grant, needed_rules
from tests.support.fault_proxy import FaultProxy
from tests.support.pki import Authority

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
PODS = "/api/v1/namespaces/kube-system/pods"
ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
UPSTREAM = "host-1_6d9f4b7e-6f0e-4c0e-9d0a-0a1b2c3d4e5f"
IMAGE = "registry.example/cloud-controller-manager:v1"
OURS = {"app.kubernetes.io/name": "ccm-supervisor"}
admin_fails, admin_warns = partial(fails, identity="admin"), partial(warns, identity="admin")
OWN_ACCOUNT = ("--use-service-account-credentials", "--controllers=volume-label")


@planted
def kubeconfig(ground: Ground, /, token: str = "", **cluster: str) -> Iterator[Sequence[str]]:
    """The supervisor's, with other values."""
    config = json.loads(ground.world.where.kubeconfig.read_text())
    config["clusters"][0]["cluster"] |= cluster
    config["users"][0]["user"] |= {"token": token} if token else {}
    path = ground.directory / "kubeconfig"
    path.write_text(json.dumps(config))
    yield [f"--kubeconfig={path}"]


@planted
def other_authority(ground: Ground) -> Iterator[Sequence[str]]:
    other = ground.directory / "other.crt"
    other.write_bytes(Authority("other").pem)
    with kubeconfig(**{"certificate-authority": str(other)})(ground) as words:
        yield words


class AnsweringProxy(FaultProxy):
    """Answers one path in place of the API server."""

    path, status, body = "", 0, Json()

    async def _pass(self, request: web.Request) -> web.Response:
        if request.path != self.path:
            return await super()._pass(request)
        return web.Response(status=self.status, body=json.dumps(self.body))


@planted
def answer(ground: Ground, path: str, status: int, body: Json) -> Iterator[Sequence[str]]:
    """The API server gives another answer to requests for `path`."""
    cluster = ground.world.cluster
    proxy = AnsweringProxy(cluster.url, cluster.ca_file)
    proxy.path, proxy.status, proxy.body = path, status, body
    with proxy:
        yield [f"--kubeconfig={proxy.kubeconfig(ground.world.where.kubeconfig)}"]


@planted
def clock_is_slow(ground: Ground) -> Iterator[Sequence[str]]:
    slow = SimpleNamespace(time=lambda: datetime.now(UTC).timestamp() - 600)
    ground.patch.setattr(api_server, "time", slow)
    yield ()


@planted
def no_addresses(ground: Ground) -> Iterator[Sequence[str]]:
    """An identity that has every permission but to write the status of nodes."""
    cluster = ground.world.cluster
    path = cluster.service_account_kubeconfig("kube-system", "short-of-rules")
    rules = [rule for rule in needed_rules() if rule.resource != "nodes/status"]
    grant(cluster, "system:serviceaccount:kube-system:short-of-rules", rules)
    yield [f"--kubeconfig={path}"]


@planted
def account_has_no_rules(ground: Ground) -> Iterator[Sequence[str]]:
    with ground.world.with_object(ACCOUNTS, {"metadata": {"name": "volume-label-controller"}}):
        yield OWN_ACCOUNT


@planted
def held(
    ground: Ground, holder: str, name: str = "planted", ours: str = "planted"
) -> Iterator[Sequence[str]]:
    """A Lease that someone renewed just now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": now}
    with ground.world.with_object(LEASES, {"metadata": {"name": name}, "spec": spec}):
        yield [f"--leader-elect-resource-name={ours}"] if ours else ()


def pod(name: str, *words: str, image: str = "example/nimbus:v1", **labels: str) -> Json:
    container = {"name": "main", "image": image, "command": [*words]}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"automountServiceAccountToken": False, "containers": [container]},
    }


@planted
def pods(ground: Ground, *bodies: Json, words: Sequence[str] = ()) -> Iterator[Sequence[str]]:
    """In kube-system; without a controller manager, their service account has to be made."""
    with ExitStack() as stack:
        account = {"metadata": {"name": "default"}}
        stack.enter_context(ground.world.with_object(ACCOUNTS, account))
        for body in bodies:
            stack.enter_context(ground.world.with_object(PODS, body))
        yield words


ROWS = (
    fails(
        "nobody listens at the API server's address",
        "api-server: --kubeconfig: the API server at https://127.0.0.1:9 does not answer",
        "check the address, and that the API server is running",
        kubeconfig(server="https://127.0.0.1:9"),
    ),
    fails(
        "the API server's name is not known",
        "api-server: --kubeconfig: the name in https://api.invalid:6443 cannot be resolved here",
        "the DNS of this host",
        kubeconfig(server="https://api.invalid:6443"),
    ),
    fails(
        "the kubeconfig has another cluster's CA",
        "api-server: no trusted connection",
        "give the CA of this API server",
        other_authority(),
    ),
    fails(
        "the token is not accepted",
        "api-server: does not accept these credentials (401)",
        "renew the token or client certificate",
        kubeconfig(token="wrong"),
    ),
    fails(
        "the kubeconfig is not there",
        "api-server: --kubeconfig: /nowhere/kubeconfig cannot be read",
        "give the path of a kubeconfig that this user may read",
        flags("--kubeconfig=/nowhere/kubeconfig"),
    ),
    fails(
        "the API server serves no Leases",
        "api-resources: "
        "does not serve: create of leases.coordination.k8s.io, get, update of leases",
        "see --runtime-config of kube-apiserver",
        answer("/apis/coordination.k8s.io/v1", 404, {}),
    ),
    fails(
        "this machine's clock is ten minutes slow",
        "clock: this clock is 10m behind the API server's",
        "let a time service",
        clock_is_slow(),
    ),
    fails(
        "a right is missing",
        "permissions: may not patch nodes/status: addresses; condition NetworkUnavailable",
        "apply what 'ccm-supervisor manifests' prints",
        no_addresses(),
    ),
    admin_fails(
        "there is no account for a worker",
        "service-accounts: no identity may do the work of the volume-label worker: "
        "kube-system/volume-label-controller: there is no such account",
        "apply what 'ccm-supervisor manifests' prints",
        flags(*OWN_ACCOUNT),
    ),
    admin_fails(
        "a worker's account has no rights",
        "service-accounts: no identity may do the work of the volume-label worker: "
        "kube-system/volume-label-controller may not patch persistentvolumes, create events",
        "apply what 'ccm-supervisor manifests' prints",
        account_has_no_rules(),
    ),
    admin_fails(
        "the namespace of the Lease is missing",
        "lease: there is no namespace nowhere",
        "kubectl create namespace nowhere",
        flags("--leader-elect-resource-namespace=nowhere"),
    ),
    admin_warns(
        "an upstream controller leads",
        f"lease: is held by {UPSTREAM}, which is alive and a real-cluster: a start stands by",
        "stop that one",
        held(UPSTREAM),
        also=frozenset({"other-controllers"}),  # the Lease of the supervisor at work
    ),
    admin_warns(
        "another Lease is alive",
        "other-controllers: Lease nimbus-cloud-controller-manager is held by",
        "stop it, unless it looks after the nodes of another cloud",
        held(UPSTREAM, "nimbus-cloud-controller-manager", ""),
    ),
    admin_warns(
        "another controller waits for the same Lease",
        "other-controllers: "
        "Pod planted is a cloud-controller-manager: it and a start here exclude each other",
        "stop it before this one starts",
        pods(pod("planted", "/bin/nimbus-cloud-controller-manager")),
    ),
    admin_fails(
        "another controller has a Lease of its own",
        "other-controllers: "
        "Pod planted is a cloud-controller-manager with another Lease, other: both would act",
        "stop it before this one starts",
        pods(pod("planted", "--leader-elect-resource-name=other", image=IMAGE)),
    ),
    admin_fails(
        "kube-controller-manager runs cloud controllers",
        "other-controllers: Pod planted runs kube-controller-manager with --cloud-provider=nimbus",
        "set --cloud-provider=external there",
        pods(pod("planted", "kube-controller-manager", "--cloud-provider=nimbus")),
    ),
    admin_fails(
        "several replicas of ours without election",
        "other-controllers: "
        "--leader-elect is false, and there are 2 replicas of ours: all would act",
        "set --leader-elect=true, or run one replica only",
        pods(
            pod("one", "ccm-supervisor", **OURS),
            pod("two", "ccm-supervisor", **OURS),
            words=["--leader-elect=false"],
        ),
        also=frozenset({"lease"}),
    ),
)
