"""Faults of the provider, its configuration, its credentials and its quota."""

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint

from ccm.cloud import registry
from ccm.sandbox.cloud.faults import Fault, Kind
from tests.check.row import Ground, Row, flags
from tests.check.world import copy_of


def package_is_missing(ground: Ground) -> Iterator[Sequence[str]]:
    point = EntryPoint("absent", "no_such_package.provider:Cloud", registry.GROUP)
    ground.patch.setattr(registry, "entry_points", lambda **_: [point])
    yield ["--cloud-provider=absent"]


def config(ground: Ground, **changes: str) -> Sequence[str]:
    path = copy_of(ground.world.where.cloud_config, ground.directory / "cloud.conf", **changes)
    return [f"--cloud-config={path}"]


def key_is_misspelt(ground: Ground) -> Iterator[Sequence[str]]:
    yield config(ground, ulr="http://127.0.0.1:9")


def credentials_are_wrong(ground: Ground) -> Iterator[Sequence[str]]:
    yield config(ground, token="wrong")


def cloud_is_down(ground: Ground) -> Iterator[Sequence[str]]:
    yield config(ground, url="http://127.0.0.1:9")


def fault(ground: Ground, fault: Fault) -> Iterator[Sequence[str]]:
    world = ground.world
    world.tell_cloud(lambda admin: admin.set_fault(fault))
    try:
        yield ()
    finally:
        world.tell_cloud(lambda admin: admin.clear_faults())


def routes_are_denied(ground: Ground) -> Iterator[Sequence[str]]:
    yield from fault(ground, Fault(Kind.DENIED, "ListRoutes"))


def account_is_throttled(ground: Ground) -> Iterator[Sequence[str]]:
    yield from fault(ground, Fault(Kind.THROTTLE, "ListRoutes", retry_after=0.1))


def cloud_is_slow(ground: Ground) -> Iterator[Sequence[str]]:
    yield from ([*words, "--cloud-call-timeout=200ms"] for words in _silent(ground))


def _silent(ground: Ground) -> Iterator[Sequence[str]]:
    yield from fault(ground, Fault(Kind.TIMEOUT, "GetLoadBalancer"))


ROWS = (
    Row(
        "the provider is not known",
        "cloud-provider",
        "--cloud-provider: 'nimbus' is not known",
        "choose one of: ",
        flags("--cloud-provider=nimbus"),
    ),
    Row(
        "the provider's package is not installed",
        "cloud-provider",
        "--cloud-provider: 'absent' cannot be imported: No module named 'no_such_package'",
        "pip install 'ccm-supervisor[absent]'",
        package_is_missing,
    ),
    Row(
        "the cloud configuration is not there",
        "cloud-provider",
        "--cloud-config: /nowhere/cloud.conf cannot be read",
        "give the path of a file that this user may read",
        flags("--cloud-config=/nowhere/cloud.conf"),
    ),
    Row(
        "a key of the cloud configuration is misspelt",
        "cloud-provider",
        "ulr",
        "",
        key_is_misspelt,
    ),
    Row(
        "the cloud credentials are wrong",
        "cloud-reads",
        "the cloud does not let us read machines of nodes, routes, a load balancer, a volume: ",
        "correct the credentials in --cloud-config",
        credentials_are_wrong,
    ),
    Row(
        "the cloud does not answer",
        "cloud-reads",
        "no answer about machines of nodes, routes, a load balancer, a volume: ",
        "check the address in --cloud-config",
        cloud_is_down,
    ),
    Row(
        "one read is denied",
        "cloud-reads",
        "the cloud does not let us read routes: ListRoutes: 403",
        "give them the right to this call",
        routes_are_denied,
    ),
    Row(
        "one read is never answered",
        "cloud-reads",
        "no answer about a load balancer: GetLoadBalancer: no answer within 200ms",
        "that the cloud works",
        cloud_is_slow,
    ),
    Row(
        "the account is throttled",
        "cloud-reads",
        "the cloud refused, for rate, to read routes: ListRoutes: 429",
        "--cloud-reserve",
        account_is_throttled,
        state="warning",
    ),
    Row(
        "the quota is too small for the cluster",
        "cloud-budget",
        "it will never keep up",
        "lengthen --node-status-update-frequency",
        flags("--cloud-rate=read=0.001"),
    ),
    Row(
        "a rate is given for a class that is not there",
        "cloud-budget",
        "--cloud-rate names class 'reed'",
        "choose from: read, write",
        flags("--cloud-rate=reed=5"),
    ),
)
