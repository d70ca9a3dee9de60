"""Who and where the provider is: assumed roles, the metadata service, tags of our own instance."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import CredentialRetrievalError, HTTPClientError

from ccm import limited_process
from ccm.cloud.gate import invoke
from ccm.cloud.interface import ProviderContext
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import service
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Instance
from ccm.model.objects import Json
from ccm.providers.aws import tags, vpc
from ccm.providers.aws.config import AwsConfig, read_config
from ccm.providers.aws.credentials import AwsCredentials, find_credentials
from ccm.providers.aws.provider import (
    AwsCloud,
    OwnInstance,
    find_own_instance,
    read_own_instance,
)
from ccm.providers.aws.tags import ClusterTag, ClusterTagging
from ccm.providers.aws.wire import SMALL_ANSWER, limit_time
from ccm.redaction import safe_text
from tests.providers.aws.emulator import CREDENTIALS, REGION
from tests.providers.aws.proxy import Drip
from tests.providers.aws.world import MARK, Aws, asking, config_text, node, node_of
from tests.support.deadlines import timeout

MAC = "02:00:00:00:00:01"
METADATA = {
    "mac": MAC,
    "instance-id": "i-0123456789abcdef0",
    "placement/region": "us-east-1",
    f"network/interfaces/macs/{MAC}/vpc-id": "vpc-1",
}
ROLE = "arn:aws:iam::123456789012:role/ccm"
FUTURE = "2101-01-01T00:00:00Z"
GIVEN = '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "%s"}'
OWN = OwnInstance(METADATA["instance-id"], "us-east-1", "vpc-1")


class _Handler(BaseHTTPRequestHandler):
    """The answers of the metadata service, by its documentation."""

    metadata: dict[str, str] = {}
    drip = Event()  # set: every answer is a byte now and then, without an end
    moved: dict[str, str] = {}  # and where to
    token = "token"

    def log_message(self, *_: object) -> None:
        return

    def handle(self) -> None:
        with suppress(OSError):  # a client that went away
            super().handle()

    def do_PUT(self) -> None:
        self._answer(self.token if self.path == "/latest/api/token" else None)

    def do_GET(self) -> None:
        is_asked_well = self.headers.get("X-aws-ec2-metadata-token") == self.token
        path = self.path.removeprefix("/latest/meta-data/")
        if to := self.moved.get(path):
            self.send_response(302)
            self.send_header("Location", self.path.replace(path, to))
            self.end_headers()
            return
        self._answer(self.metadata.get(path) if is_asked_well else None)

    def _answer(self, text: str | None) -> None:
        if self.drip.is_set() and self.command == "GET":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while self.drip.is_set():
                self.wfile.write(b"x")
                time.sleep(0.05)
            return
        self.send_response(200 if text is not None else 404)
        self.end_headers()
        self.wfile.write((text or "").encode(errors="surrogateescape"))


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the metadata service says; tests change it."""
    _Handler.metadata = dict(METADATA)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    serving = Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    yield _Handler.metadata
    server.shutdown()
    serving.join()
    server.server_close()


def test_a_machine_in_aws_knows_where_it_is(metadata: dict[str, str]) -> None:
    metadata["tags/instance"] = "Name\nkubernetes.io/cluster/kit"
    assert read_own_instance() == OwnInstance(METADATA["instance-id"], "us-east-1", "vpc-1", "kit")


def test_a_metadata_service_that_never_ends_an_answer_is_given_up(metadata: dict[str, str]) -> None:
    _Handler.drip.set()
    try:
        assert read_own_instance(total_timeout=0.5) == OwnInstance()
    finally:
        _Handler.drip.clear()


async def test_credentials_of_a_service_that_never_ends_an_answer_are_given_up(
    metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread that looks for them would wait for ever."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    config = AwsConfig(call_timeout=timeout(0.5))
    limit_time()
    _Handler.drip.set()
    try:
        looking = asyncio.create_task(
            asyncio.to_thread(find_credentials, config, "us-east-1", "test", Config())
        )
        await asyncio.wait([looking], timeout=timeout(5.0))
        assert looking.done()
        assert looking.result() is None
    finally:
        _Handler.drip.clear()


def test_metadata_without_measure_is_left_out(metadata: dict[str, str]) -> None:
    """Its words take many times its size, in each worker."""
    metadata["tags/instance"] = "kubernetes.io/cluster/kit" + " a" * SMALL_ANSWER
    assert read_own_instance() == OWN


def test_credentials_without_measure_are_not_read(
    metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    given = {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c", "Expiration": FUTURE}
    metadata["iam/security-credentials/"] = "node"
    metadata["iam/security-credentials/node"] = json.dumps(given)
    limit_time()
    assert find_credentials(AwsConfig(), "us-east-1", "test", Config()).access_key == "a"
    metadata["iam/security-credentials/node"] += " " * SMALL_ANSWER
    with pytest.raises(HTTPClientError, match=f"more than {SMALL_ANSWER} bytes"):
        find_credentials(AwsConfig(), "us-east-1", "test", Config())


def test_words_that_are_given_as_credentials_are_redacted_nowhere(
    metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys of heartbeats are words."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setattr(_Handler, "token", "cloud_outage")
    given = {"AccessKeyId": "a", "SecretAccessKey": "loop_lag", "Token": "cloud_calls"}
    metadata["iam/security-credentials/"] = "node"
    metadata["iam/security-credentials/node"] = json.dumps({**given, "Expiration": FUTURE})
    assert read_own_instance() == OWN
    credentials = AwsCredentials(
        lambda: find_credentials(AwsConfig(), "us-east-1", "test", Config()), 10.0
    )
    assert credentials.get_frozen_credentials().secret_key == "loop_lag"
    words = "cloud_outage loop_lag cloud_calls"
    assert safe_text(words) == words


async def test_a_role_that_is_asked_for_again_is_given_up_in_time_injected(aws: Aws) -> None:
    """All calls wait for it, some of them in a lock of all Services."""
    extra = f"RoleARN = {ROLE}\nCallTimeout = {timeout(0.5):g}s"
    config = read_config(config_text(aws, aws.proxy.url, extra).encode(), "cloud.conf")
    once = Config(retries={"mode": "standard", "total_max_attempts": 1})
    limit_time()
    credentials = AwsCredentials(
        lambda: find_credentials(config, REGION, "test", once), config.call_timeout
    )
    with aws.proxy.fault("AssumeRole", Drip()):
        looking = asyncio.create_task(asyncio.to_thread(credentials._look_again))
        await asyncio.wait([looking], timeout=timeout(5.0))
        assert looking.done()
    assert not looking.result()


def test_a_process_for_credentials_that_never_ends_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All calls wait for it, as no two of them renew the same credentials."""
    use_process(monkeypatch, tmp_path, "head -c 1000000 /dev/zero >&2; sleep 20; true")
    monkeypatch.setattr(limited_process, "TIMEOUT", 0.5)
    limit_time()
    with pytest.raises(CredentialRetrievalError, match=r"not ended within 0\.5 s"):
        find_credentials(AwsConfig(), "us-east-1", "test", Config())


def test_a_process_for_credentials_that_prints_without_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In its time it would print all the memory that there is."""
    monkeypatch.setattr(limited_process, "MAX_PRINTED", 1000)
    use_process(monkeypatch, tmp_path, "head -c 2000 /dev/zero; sleep 20; true")
    limit_time()
    with pytest.raises(CredentialRetrievalError, match="it printed more than 1000 bytes"):
        find_credentials(AwsConfig(), "us-east-1", "test", Config())


@pytest.mark.parametrize(
    "script",
    [
        "echo a word",
        "echo []",
        """echo '{"Version": 1, "AccessKeyId": null, "SecretAccessKey": null}'""",
        f"echo '{GIVEN % '2001-01-01T00:00:00Z'}'",
        f"echo '{GIVEN % '2101-01-01T00:00:00'}'",
        f"echo '{GIVEN % 'soon'}'",
        r"printf '\377' >&2; exit 1",
        "exit 1",
    ],
)
async def test_what_gives_no_credentials_ends_no_process(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str
) -> None:
    """It is an error of the calls, or of a start that waits for it, and no fault of our own."""
    use_process(monkeypatch, tmp_path, script)
    config = config_text(aws, aws.proxy.url).encode()
    context = ProviderContext(KitGate(10.0), config, "cloud.conf", "test", "test")
    cloud = AwsCloud()

    async def start() -> None:
        await cloud.initialize(context)
        assert cloud.instances
        await invoke(cloud.instances.describe, [node("a")])

    with pytest.raises(CloudError):
        await start()
    await cloud.close()


def use_process(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> None:
    """Have the SDK run this for credentials, and find none elsewhere."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    (directory / "give").write_text(script)
    (file := directory / "config").write_text(
        f"[default]\ncredential_process = sh {directory / 'give'}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))


def test_the_metadata_service_is_where_the_configuration_says(
    metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    url = os.environ[name]
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert read_own_instance(f"{url}/").instance_id == METADATA["instance-id"]


def test_two_clusters_in_the_tags_are_none(metadata: dict[str, str]) -> None:
    metadata["tags/instance"] = "kubernetes.io/cluster/a\nkubernetes.io/cluster/b"
    assert read_own_instance().cluster_id == ""


def test_the_legacy_tag_counts_alone(metadata: dict[str, str]) -> None:
    metadata |= {"tags/instance": "KubernetesCluster", "tags/instance/KubernetesCluster": "old"}
    assert read_own_instance().cluster_id == "old"


def test_a_redirection_of_the_metadata_service_is_not_followed(metadata: dict[str, str]) -> None:
    """Not to this host either: the token is for what gave it."""
    _Handler.moved["instance-id"] = "placement/region"
    try:
        assert read_own_instance() == replace(OWN, instance_id="")
    finally:
        _Handler.moved.clear()


def test_what_is_not_text_in_the_metadata_is_left_out(metadata: dict[str, str]) -> None:
    metadata["instance-id"] = "\udcff"
    assert read_own_instance() == replace(OWN, instance_id="")


def test_elsewhere_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_own_instance() == OwnInstance()
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    assert read_own_instance() == OwnInstance()


NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize("lacks", ["Region", "KubernetesClusterID"])
async def test_a_metadata_service_that_does_not_answer_yet_is_no_fault_of_the_configuration(
    aws: Aws, metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """A process that ends for such a fault stays down until a person acts."""
    name, text = "AWS_EC2_METADATA_SERVICE_ENDPOINT", config_text(aws, aws.proxy.url)
    lines = [line for line in text.splitlines() if not line.startswith((f"{lacks} =", "VPC ="))]
    head, _, rest = "\n".join(lines).partition("[ServiceOverride")
    if lacks == "Region":  # that of the overrides stays
        rest = text.partition("[ServiceOverride")[2]
    config = f"{head}[ServiceOverride{rest}".encode()
    url = os.environ[name]
    monkeypatch.setenv(name, NOWHERE)
    context = ProviderContext(KitGate(10.0), config, "cloud.conf", "test", "test")
    with pytest.raises(CloudError, match=f"metadata service does not answer.*set {lacks}"):
        await AwsCloud().initialize(context)
    monkeypatch.setenv(name, url)
    cloud = AwsCloud()
    await cloud.initialize(context)
    assert cloud.has_cluster_id
    await cloud.close()


@pytest.mark.parametrize("odd", [None, "", "<html>"])
async def test_the_vpc_is_asked_for_again_where_nothing_has_said_it(
    aws: Aws, metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch, odd: str | None
) -> None:
    """The metadata service may answer nothing, all but the VPC, or nonsense for it."""
    name, path = "AWS_EC2_METADATA_SERVICE_ENDPOINT", f"network/interfaces/macs/{MAC}/vpc-id"
    text = config_text(aws, aws.proxy.url).replace(f"VPC = {aws.vpc}", "")
    metadata[path] = odd or ""
    url = os.environ[name]
    if odd is None:
        monkeypatch.setenv(name, NOWHERE)
    monkeypatch.setattr(vpc, "FIND_INTERVAL", 0.0)
    aws.cloud = AwsCloud()
    await aws.cloud.initialize(
        ProviderContext(KitGate(10.0), text.encode(), "cloud.conf", "test", "test")
    )
    with pytest.raises(Refused, match="the VPC is not known"):
        await aws.ensure(asking("nlb"))
    monkeypatch.setenv(name, url)
    metadata[path] = aws.vpc
    assert (await aws.ensure(asking("nlb"))).ingress
    await aws.cloud.close()


async def test_the_cluster_is_found_on_our_own_instance(aws: Aws, metadata: dict[str, str]) -> None:
    """Where the configuration does not say it and the metadata service gives no tags."""
    (own, made) = aws.launch(2)
    metadata["instance-id"] = own["InstanceId"]
    await aws.start(has_cluster_id=False)
    assert aws.cloud.has_cluster_id
    await aws.create_route(node_of(made), "10.244.0.0/24")  # needs the tagged table


def test_nothing_is_ours_without_a_cluster() -> None:
    with pytest.raises(Refused, match="set KubernetesClusterID"):
        ClusterTagging("", None).cluster_tag()
    both = {"kubernetes.io/cluster/a": "", "kubernetes.io/cluster/b": ""}
    with pytest.raises(Refused, match="not one cluster but a, b"):
        ClusterTagging("", lambda: both).cluster_tag()
    assert ClusterTagging("", lambda: {MARK: "owned"}).cluster_tag() == ClusterTag("kit")


def test_the_cluster_is_what_two_reads_of_the_tags_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cluster's routes would be deleted until a restart."""
    monkeypatch.setattr(tags, "KEPT", -1.0)
    names = ["kit", "theirs", "kit", "kit", "", "kit", "throttled", "kit"]

    def read() -> dict[str, str]:
        if (name := names.pop(0)) == "throttled":
            raise CloudError(name)
        return {f"kubernetes.io/cluster/{name}": "owned"} if name else {}

    tagging = ClusterTagging("theirs", read, reread_interval=-1.0)
    for _ in range(3):  # the metadata service's is one of two
        with pytest.raises(Refused, match="not one cluster but kit, theirs"):
            tagging.cluster_tag()
    for _ in range(len(names)):
        assert tagging.cluster_tag() == ClusterTag("kit")


async def test_a_role_is_assumed_for_all_calls(aws: Aws) -> None:
    (made,) = aws.launch()
    extra = f"RoleARN = {ROLE}\nSourceARN = arn:aws:eks:us-east-1:123456789012:cluster/kit"
    await aws.start(extra, caller="node-0")
    node = node_of(made)
    answers = await aws.describe(node)
    assert isinstance(answers[node.name], Instance)
    first = aws.proxy.requests[0]
    assert first.name == "sts:AssumeRole"
    assert first.parameters["RoleArn"] == ROLE
    assert first.parameters["RoleSessionName"] == "ccm-supervisor-node-0"
    assert aws.proxy.counted()["sts:AssumeRole"] == 1
    assert "ccm-supervisor/node-0" in aws.proxy.requests[-1].user_agent


UNTAGGED: list[Json] = []


async def test_without_a_cluster_id_machines_are_read_and_nothing_is_written(aws: Aws) -> None:
    """As with --allow-untagged-cloud on a machine outside of AWS."""
    (made,) = aws.launch(TagSpecifications=UNTAGGED)
    await aws.start(has_cluster_id=False, allow_untagged=True)
    assert not aws.cloud.has_cluster_id
    by_name, by_id = node(made["PrivateDnsName"]), node_of(made, ["10.244.0.0/24"])
    for asked in (by_name, by_id):
        (answer,) = (await aws.describe(asked)).values()
        assert isinstance(answer, Instance)
    one = service("web")
    for attempt in (
        aws.ensure(one, [by_id]),
        aws.update_nodes(one, [by_id]),
        aws.delete(one),
        aws.list_routes(by_id),
        aws.create_route(by_id),
    ):
        with pytest.raises(Refused, match=r"tag this instance with kubernetes\.io/cluster/"):
            await attempt
    assert aws.proxy.writes() == []


async def test_without_a_cluster_id_the_configured_route_table_is_ours(aws: Aws) -> None:
    (made,) = aws.launch(TagSpecifications=UNTAGGED)
    table = f"RouteTableID = {aws.table}"
    await aws.start(table, has_cluster_id=False, allow_untagged=True)
    one = node_of(made, ["10.244.0.0/24"])
    await aws.create_route(one, "10.244.0.0/24")
    (route,) = await aws.list_routes(one)
    assert route.node == one.name


@pytest.mark.parametrize(
    ("tagged", "is_allowed", "is_found"),
    [
        ((), True, True),
        ((), False, False),
        ((MARK,), True, False),
        (("kubernetes.io/cluster/a", "kubernetes.io/cluster/b"), True, False),
    ],
    ids=["allowed", "not-allowed", "there-is-a-cluster", "there-are-two"],
)
async def test_a_machine_without_a_tag_answers_for_a_name_if_there_is_no_cluster_and_it_is_allowed(
    aws: Aws, metadata: dict[str, str], tagged: tuple[str, ...], is_allowed: bool, is_found: bool
) -> None:
    own, made = aws.launch(2, TagSpecifications=UNTAGGED)
    metadata["instance-id"] = own["InstanceId"]
    for key in tagged:
        aws.tag(own["InstanceId"], key)
    await aws.start(has_cluster_id=False, allow_untagged=is_allowed)
    try:
        answers = await aws.describe(node(made["PrivateDnsName"]))
        assert [isinstance(answer, Instance) for answer in answers.values()] == [is_found]
    except Refused:
        assert not is_found


def test_tags_that_name_no_cluster_are_read_again_only_after_a_while() -> None:
    reads, interval = list[dict[str, str]]([{}]), timeout(0.25)
    ownership = ClusterTagging("", lambda: reads.pop(), is_optional=True, reread_interval=interval)
    assert ownership.required_tag() is None
    assert ownership.required_tag() is None
    time.sleep(interval)
    reads.append({MARK: "owned"})
    assert ownership.required_tag() == ownership.cluster_tag() == ClusterTag("kit")


@pytest.mark.parametrize("path", ["instance-id", f"network/interfaces/macs/{MAC}/vpc-id"])
def test_one_answer_about_another_machine_is_not_kept(
    metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Of a proxy before the metadata service, say; what was found at the start counted until the
    process ended.
    """

    wrong = ["i-0fedcba9876543210" if path == "instance-id" else "vpc-2"]

    class Once(dict[str, str]):
        def get(self, asked: str, *_: object) -> Any:
            return wrong.pop() if asked == path and wrong else super().get(asked)

    monkeypatch.setattr(_Handler, "metadata", Once(metadata))
    with pytest.raises(CloudError, match="two answers"):
        find_own_instance()
    assert find_own_instance().instance_id == METADATA["instance-id"]
    assert find_own_instance().vpc == "vpc-1"
