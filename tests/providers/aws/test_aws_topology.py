"""Labels of AWS's network; moto does not know the call, so its answers are injected."""

import re
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ccm.model.cloud import Instance
from ccm.model.objects import Json, Node
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.topology import DEFAULT_TYPES, LAYER_LABEL, MAX_LAYERS, NetworkTopology
from tests.providers.aws.proxy import Fault, Garbage, Refusal, Reply, Request, Reset
from tests.providers.aws.world import Aws, node_of

ACTION = "DescribeInstanceTopology"


@dataclass
class Network:
    """What AWS answers, by its documentation: those without a place are left out."""

    placed: set[str] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)  # how many at a time

    def answer(self, request: Request) -> Fault | None:
        if request.operation != ACTION:
            return None
        ids = [value for key, value in request.parameters.items() if key.startswith("InstanceId.")]
        self.asked.append(len(ids))
        items = "".join(self.item(one) for one in ids if one in self.placed)
        return Reply(f"<{ACTION}Response><instanceSet>{items}</instanceSet></{ACTION}Response>")

    def item(self, one: str) -> str:
        layers = "".join(f"<item>nn-{layer}</item>" for layer in ("top", "mid", one[-4:]))
        places = f"<networkNodeSet>{layers}</networkNodeSet>"
        return f"<item><instanceId>{one}</instanceId>{places}</item>"


@pytest.fixture
def network(aws: Aws) -> Network:
    network = Network()
    aws.proxy.rule = network.answer
    return network


async def nodes(aws: Aws, network: Network, count: int = 1, its_type: str = "p4d.24xlarge") -> Any:
    """Nodes of machines that have a place in the network."""
    made = aws.launch(count, InstanceType=its_type)
    network.placed |= {one["InstanceId"] for one in made}
    return [node_of(one) for one in made]


async def layers(aws: Aws, *asked: Node) -> list[list[str]]:
    """The labels that each Node is to have, without those of the zone."""
    answers = await aws.describe(*asked)
    found = []
    for one in asked:
        answer = answers[one.name]
        assert isinstance(answer, Instance)
        assert "topology.k8s.aws/zone-id" in answer.labels
        found.append([f"{k[-1]}={v}" for k, v in answer.labels.items() if LAYER_LABEL in k])
    return found


@pytest.mark.parametrize(
    ("its_type", "is_asked"),
    [
        *((one, True) for one in ("p4d.24xlarge", "hpc7a.96xlarge", "trn1n.32xlarge")),
        *((one, True) for one in ("p6-b200.48xlarge", "p6e-gb200.36xlarge", "g6e.xlarge")),
        *((one, False) for one in ("m5.large", "g4dn.xlarge", "c6gn.medium", "t3.micro", "")),
    ],
)
def test_types_that_tell_their_place_are_asked_for_it(its_type: str, is_asked: bool) -> None:
    assert bool(re.search(DEFAULT_TYPES, its_type)) is is_asked


async def test_layers_are_labels_and_are_read_once_injected(aws: Aws, network: Network) -> None:
    made = await nodes(aws, network, 101)
    for _ in range(2):
        labels = await layers(aws, *made)
        assert labels[0] == ["1=nn-top", "2=nn-mid", f"3=nn-{made[0].provider_id[-4:]}"]
        assert all(len(each) == 3 for each in labels)
    assert network.asked == [100, 1]


async def test_other_types_cost_no_call(aws: Aws, network: Network) -> None:
    assert await layers(aws, *await nodes(aws, network, its_type="m5.large")) == [[]]
    assert network.asked == []


async def test_a_node_with_labels_and_a_machine_that_is_off_cost_no_call_injected(
    aws: Aws, network: Network
) -> None:
    labelled, off = await nodes(aws, network, 2)
    labelled.raw["metadata"]["labels"] = {f"{LAYER_LABEL}1": "nn-old"}
    aws.ec2.stop_instances(InstanceIds=[off.provider_id.rpartition("/")[2]])
    assert await layers(aws, labelled, off) == [[], []]
    assert network.asked == []


async def test_the_configured_pattern_says_which_types_are_asked_injected(
    aws: Aws, network: Network
) -> None:
    await aws.start("SupportedTopologyInstanceTypePattern = ^m5")
    made = [*await nodes(aws, network, its_type="m5.large"), *await nodes(aws, network)]
    assert [len(each) for each in await layers(aws, *made)] == [3, 0]


async def test_a_machine_without_a_place_yet_is_not_asked_for_at_each_look_injected(
    aws: Aws, network: Network
) -> None:
    made = await nodes(aws, network)
    network.placed = set()
    for _ in range(2):
        assert await layers(aws, *made) == [[]]
    assert network.asked == [1]


@pytest.mark.parametrize(
    "fault",
    [
        Refusal(403, "UnauthorizedOperation"),
        Refusal(400, "UnsupportedOperation"),
        Refusal(503, "RequestLimitExceeded"),
        Refusal(500, "InternalError"),
        Garbage(),
        Reset(),
    ],
    ids=str,
)
async def test_no_error_keeps_a_node_from_its_other_labels_injected(
    aws: Aws, network: Network, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is logged once, and not asked again at once."""
    made = await nodes(aws, network, 2)
    with aws.proxy.fault(ACTION, fault):
        assert await layers(aws, made[0]) == [[]]
        assert await layers(aws, *made) == [[], []]
    assert aws.proxy.counted()[f"ec2:{ACTION}"] == 1
    reported = [record for record in caplog.records if "topology" in record.message]
    assert len(reported) == 1


async def test_a_machine_that_went_away_keeps_no_other_from_its_labels_injected(
    aws: Aws, network: Network
) -> None:
    gone, there = await nodes(aws, network, 2)
    instance_id = gone.provider_id.rpartition("/")[2]
    error = Refusal(400, "InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' is gone")

    def answer(request: Request) -> Fault | None:
        is_named = request.operation == ACTION and instance_id in request.parameters.values()
        return error if is_named else network.answer(request)

    aws.proxy.rule = answer
    assert [len(each) for each in await layers(aws, gone, there)] == [0, 3]


def test_layers_without_number_are_not_kept_for_a_day() -> None:
    """A million took 200 MB of each instance, and were gone through at each look at its Node."""

    class Topology:
        def list_pages(self, *_: str, InstanceIds: list[str]) -> list[Json]:  # noqa: N803 - AWS'
            nodes = [f"nn-{number}" for number in range(10_000)]
            return [{"InstanceId": item, "NetworkNodes": nodes} for item in InstanceIds]

    topology = NetworkTopology(cast(AwsApi, Topology()), "")
    (labels,) = topology.labels_of({"i-1": "p4d.24xlarge"}).values()
    assert len(labels) == MAX_LAYERS
    assert labels[f"{LAYER_LABEL}1"] == "nn-0"
