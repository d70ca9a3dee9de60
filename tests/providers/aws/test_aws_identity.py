"""Who and where the provider is: assumed roles, the metadata service, tags of our own instance."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import ProviderContext
from ccm.cloud.testkit.objects import service
from ccm.errors import Refused
from ccm.model.cloud import Instance
from ccm.model.objects import Json
from ccm.providers.aws import tags
from ccm.providers.aws.metadata import Machine, Metadata
from ccm.providers.aws.provider import AwsCloud
from ccm.providers.aws.tags import Mark, Ownership
from tests.providers.aws.proxy import Proxy
from tests.providers.aws.world import MARK, Account, config_text, node, node_of
from tests.providers.simulated.doubles import CountingGate

MAC = "02:00:00:00:00:01"
FACTS = {
    "mac": MAC,
    "instance-id": "i-0123456789abcdef0",
    "placement/region": "us-east-1",
    f"network/interfaces/macs/{MAC}/vpc-id": "vpc-1",
    f"network/interfaces/macs/{MAC}/subnet-id": "subnet-1",
}


class _Handler(BaseHTTPRequestHandler):
    """The answers of the metadata service, by its documentation."""

    facts: dict[str, str] = {}

    def log_message(self, *_: object) -> None:
        return

    def do_PUT(self) -> None:
        self._answer("token" if self.path == "/latest/api/token" else None)

    def do_GET(self) -> None:
        is_asked_well = self.headers.get("X-aws-ec2-metadata-token") == "token"
        path = self.path.removeprefix("/latest/meta-data/")
        self._answer(self.facts.get(path) if is_asked_well else None)

    def _answer(self, text: str | None) -> None:
        self.send_response(200 if text is not None else 404)
        self.end_headers()
        self.wfile.write((text or "").encode())


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the metadata service says; tests change it."""
    _Handler.facts = dict(FACTS)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    serving = Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    yield _Handler.facts
    server.shutdown()
    serving.join()
    server.server_close()


def test_a_machine_in_aws_knows_where_it_is(facts: dict[str, str]) -> None:
    facts["tags/instance"] = "Name\nkubernetes.io/cluster/kit"
    assert Metadata().machine() == Machine(
        FACTS["instance-id"], "us-east-1", "vpc-1", "subnet-1", "kit"
    )


def test_two_clusters_in_the_tags_are_none(facts: dict[str, str]) -> None:
    facts["tags/instance"] = "kubernetes.io/cluster/a\nkubernetes.io/cluster/b"
    assert Metadata().machine().cluster_id == ""


def test_the_legacy_tag_counts_alone(facts: dict[str, str]) -> None:
    facts |= {"tags/instance": "KubernetesCluster", "tags/instance/KubernetesCluster": "old"}
    assert Metadata().machine().cluster_id == "old"


def test_elsewhere_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Metadata().machine() == Machine()
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    assert Metadata().machine() == Machine()


async def test_the_cluster_is_found_on_our_own_instance(
    account: Account, proxy: Proxy, facts: dict[str, str]
) -> None:
    """Where the configuration does not say it and the metadata service gives no tags."""
    (own, made) = account.launch(2)
    facts["instance-id"] = own["InstanceId"]
    config = config_text(account, proxy.url).replace("KubernetesClusterID = kit", "")
    cloud = AwsCloud()
    context = ProviderContext(CountingGate(), config.encode(), "", "test", "test")
    await cloud.initialize(context)
    assert cloud.has_cluster_id
    assert cloud.routes
    await invoke(cloud.routes.create, node_of(made), "10.244.0.0/24")  # needs the tagged table
    await cloud.close()


def test_nothing_is_ours_without_a_cluster() -> None:
    with pytest.raises(Refused, match="set KubernetesClusterID"):
        Ownership("", None).mark()
    both = {"kubernetes.io/cluster/a": "", "kubernetes.io/cluster/b": ""}
    with pytest.raises(Refused, match="not one cluster but a, b"):
        Ownership("", lambda: both).mark()
    assert Ownership("", lambda: {MARK: "owned"}).mark() == Mark("kit")


async def test_a_role_is_assumed_for_all_calls(account: Account, proxy: Proxy) -> None:
    (made,) = account.launch()
    role = "arn:aws:iam::123456789012:role/ccm"
    extra = f"RoleARN = {role}\nSourceARN = arn:aws:eks:us-east-1:123456789012:cluster/kit"
    cloud = AwsCloud()
    config = config_text(account, proxy.url, extra).encode()
    await cloud.initialize(ProviderContext(CountingGate(), config, "", "test", "node-0"))
    assert cloud.instances
    node = node_of(made)
    answers = await invoke(cloud.instances.describe, [node])
    await cloud.close()
    assert isinstance(answers[node.name], Instance)
    first = proxy.requests[0]
    assert first.name == "sts:AssumeRole"
    assert first.parameters["RoleArn"] == role
    assert first.parameters["RoleSessionName"] == "ccm-supervisor-node-0"
    assert proxy.counted()["sts:AssumeRole"] == 1
    assert "ccm-supervisor/node-0" in proxy.requests[-1].user_agent


UNTAGGED: list[Json] = []


async def untagged(
    account: Account, proxy: Proxy, extra: str = "", is_allowed: bool = True
) -> AwsCloud:
    """A provider to which nothing but its own machine's tags could say which cluster is ours."""
    cloud = AwsCloud()
    config = config_text(account, proxy.url, extra).replace("KubernetesClusterID = kit", "")
    gate = CountingGate()
    await cloud.initialize(
        ProviderContext(gate, config.encode(), "", "test", "test", allow_untagged=is_allowed)
    )
    return cloud


async def test_without_a_cluster_id_machines_are_read_and_nothing_is_written(
    account: Account, proxy: Proxy
) -> None:
    """As with --allow-untagged-cloud on a machine outside of AWS."""
    (made,) = account.launch(TagSpecifications=UNTAGGED)
    cloud = await untagged(account, proxy)
    assert not cloud.has_cluster_id
    assert cloud.instances
    assert cloud.load_balancers
    assert cloud.routes
    by_name, by_id = node(made["PrivateDnsName"]), node_of(made, ["10.244.0.0/24"])
    for asked in (by_name, by_id):
        (answer,) = (await invoke(cloud.instances.describe, [asked])).values()
        assert isinstance(answer, Instance)
    one = service("web")
    balancers, routes = cloud.load_balancers, cloud.routes
    for attempt in (
        lambda: balancers.ensure(one, [by_id]),
        lambda: balancers.update_hosts(one, [by_id]),
        lambda: balancers.delete(one),
        lambda: routes.list([by_id]),
        lambda: routes.create(by_id, "10.244.0.0/24"),
    ):
        with pytest.raises(Refused, match=r"tag this instance with kubernetes\.io/cluster/"):
            await invoke(attempt)
    assert proxy.writes() == []
    await cloud.close()


async def test_without_a_cluster_id_the_configured_route_table_is_ours(
    account: Account, proxy: Proxy
) -> None:
    (made,) = account.launch(TagSpecifications=UNTAGGED)
    cloud = await untagged(account, proxy, f"RouteTableID = {account.table}")
    assert cloud.routes
    one = node_of(made, ["10.244.0.0/24"])
    await invoke(cloud.routes.create, one, "10.244.0.0/24")
    (route,) = await invoke(cloud.routes.list, [one])
    assert route.node == one.name
    await cloud.close()


@pytest.mark.parametrize(
    ("tagged", "is_allowed", "is_found"),
    [
        ({}, True, True),
        ({}, False, False),
        ({MARK: "owned"}, True, False),
        ({"kubernetes.io/cluster/a": "owned", "kubernetes.io/cluster/b": "owned"}, True, False),
    ],
    ids=["allowed", "not-allowed", "there-is-a-cluster", "there-are-two"],
)
async def test_a_machine_without_a_tag_answers_for_a_name_if_there_is_no_cluster_and_it_is_allowed(
    account: Account,
    proxy: Proxy,
    facts: dict[str, str],
    tagged: dict[str, str],
    is_allowed: bool,
    is_found: bool,
) -> None:
    own, made = account.launch(2, TagSpecifications=UNTAGGED)
    facts["instance-id"] = own["InstanceId"]
    if tagged:
        listed = [{"Key": key, "Value": value} for key, value in tagged.items()]
        account.ec2.create_tags(Resources=[own["InstanceId"]], Tags=listed)
    cloud = await untagged(account, proxy, is_allowed=is_allowed)
    assert cloud.instances
    try:
        answers = await invoke(cloud.instances.describe, [node(made["PrivateDnsName"])])
        assert [isinstance(answer, Instance) for answer in answers.values()] == [is_found]
    except Refused:
        assert not is_found
    await cloud.close()


def test_tags_that_name_no_cluster_are_read_again_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[dict[str, str]] = [{}]
    ownership = Ownership("", lambda: reads.pop(), is_optional=True)
    assert ownership.mark_to_look_for() is None
    assert ownership.mark_to_look_for() is None
    monkeypatch.setattr(tags, "LOOK_AGAIN", 0.0)
    reads.append({MARK: "owned"})
    assert ownership.mark_to_look_for() == ownership.mark() == Mark("kit")
