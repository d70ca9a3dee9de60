"""Faults of the provider, its configuration, its credentials and its quota."""

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint

from ccm.checks.cloud import CALL_TIMEOUT
from ccm.cloud import registry
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.integration.check.planting import Ground, fails, flags, planted
from tests.support.deadlines import timeout


@planted
def package_is_missing(ground: Ground) -> Iterator[Sequence[str]]:
    point = EntryPoint("absent", "no_such_package.provider:Cloud", registry.GROUP)
    ground.patch.setattr(registry, "entry_points", lambda **_: [point])
    yield ["--cloud-provider=absent"]


@planted
def config(ground: Ground, key: str, value: str) -> Iterator[Sequence[str]]:
    """The cloud configuration has another value."""
    lines = ground.world.where.cloud_config.read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0].strip() != key]
    path = ground.directory / "cloud.conf"
    path.write_text("\n".join([*kept, f"{key} = {value}\n"]))
    yield [f"--cloud-config={path}"]


@planted
def fault(ground: Ground, fault: CloudFault, *words: str) -> Iterator[Sequence[str]]:
    with ground.world.cloud_fault(fault):
        yield words


CALL_LIMIT = f"{min(round(timeout(0.5)), int(CALL_TIMEOUT))}s"  # all other calls are answered

ROWS = (
    fails(
        "the provider is not known",
        "cloud-provider: --cloud-provider: 'nimbus' is not known",
        "choose one of: ",
        flags("--cloud-provider=nimbus"),
    ),
    fails(
        "the provider's package is not installed",
        "cloud-provider: "
        "--cloud-provider: 'absent' cannot be imported: No module named 'no_such_package'",
        "install what the package of 'absent' needs",
        package_is_missing(),
    ),
    fails(
        "the cloud configuration is not there",
        "cloud-provider: --cloud-config: /nowhere/cloud.conf cannot be read",
        "give the path of a file that this user may read",
        flags("--cloud-config=/nowhere/cloud.conf"),
    ),
    fails(
        "a key of the cloud configuration is misspelt",
        "cloud-provider: ulr",
        "",
        config("ulr", "http://127.0.0.1:9"),
    ),
    fails(
        "the cloud credentials are wrong",
        "cloud-reads: "
        "the cloud does not let us read machines of nodes, routes, a load balancer, a volume: ",
        "correct the credentials in --cloud-config",
        config("token", "wrong"),
    ),
    fails(
        "the cloud does not answer",
        "cloud-reads: no answer about machines of nodes, routes, a load balancer, a volume: ",
        "check the address in --cloud-config",
        config("url", "http://127.0.0.1:9"),
    ),
    fails(
        "one read is never answered",
        "cloud-reads: no answer about a load balancer: ListLoadBalancers: no answer within "
        f"{CALL_LIMIT}",
        "that the cloud works",
        fault(
            CloudFault(CloudFaultKind.TIMEOUT, "ListLoadBalancers"),
            f"--cloud-call-timeout={CALL_LIMIT}",
        ),
    ),
    fails(
        "a rate is given for a class that is not there",
        "cloud-budget: --cloud-rate names class 'reed'",
        "choose from: read, write",
        flags("--cloud-rate=reed=5"),
    ),
)
