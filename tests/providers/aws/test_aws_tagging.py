"""The tagging controller under its runner, on the emulator: what is tagged, in how many calls."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ccm.decide.budget import READS
from ccm.errors import ConfigurationFaults
from ccm.model.objects import Json
from ccm.providers.aws import tagging
from ccm.providers.aws.tags import MAX_TAGS, read_tags, tag_list
from ccm.settings import Settings
from tests.providers.aws.proxy import Refusal, Request
from tests.providers.aws.world import MARK, Aws
from tests.support.cluster import Cluster
from tests.support.context import FakePort, controller_context, frame, running
from tests.support.waiting import until
from workers.runner import WAITS_FOR_CLOUD, Runner

TAGS = {"team": "web", "cost-centre": "7"}
SETTINGS = Settings(cloud_provider="aws", tags=TAGS, resources=("instance",))


@dataclass
class Tagging:
    """The controller at work; Nodes come and go as the supervisor would tell it."""

    aws: Aws
    runner: Runner
    controller: tagging.TaggingController
    frames: int = 0
    versions: Counter[str] = field(default_factory=Counter)

    def put(self, **provider_ids: str) -> None:
        """Nodes by name; the empty text is one that is gone."""
        entries: list[list[Any]] = []
        for name, provider_id in provider_ids.items():
            self.versions[name] += 1
            value = {"metadata": {"name": name}, "spec": {"providerID": provider_id}}
            entries.append(["Node", name, self.versions[name], value if provider_id else None])
        self.frames += 1
        self.runner.on_message(frame(self.frames, *entries, complete=self.frames == 1))

    async def rest(self, done: int, pending: int = 0) -> Json:
        """Its status, once so many are done and so many pending, none for want of an answer."""

        def is_at_rest() -> bool:
            status = self.runner.status()
            has_ended = status["done"] >= done and status["pending"] >= pending
            waits = WAITS_FOR_CLOUD in status["reasons"].values()
            return has_ended and not waits and not status["queue"]["ready"]

        await until(is_at_rest)
        return {**self.runner.status()}

    def calls(self) -> Counter[str]:
        """Those since the last question, by their names."""
        calls = Counter(request.operation for request in self.aws.proxy.requests)
        self.aws.proxy.requests.clear()
        return calls


@asynccontextmanager
async def working(aws: Aws, settings: Settings = SETTINGS) -> AsyncIterator[Tagging]:
    port = FakePort()
    context = controller_context(tagging, aws.cloud, Cluster(), port, settings)
    controller = tagging.new_controller(context)
    async with running(tagging, context, controller, port) as (runner, _):
        yield Tagging(aws, runner, controller)


def provider_ids(machines: Sequence[Json]) -> dict[str, str]:
    return {f"node-{n}": f"aws:///z/{one['InstanceId']}" for n, one in enumerate(machines)}


def own_tags(aws: Aws, machine: Json) -> dict[str, str]:
    """The tags of an instance, but for the cluster's."""
    tags = read_tags(aws.instance(machine["InstanceId"]).get("Tags"))
    return {key: value for key, value in tags.items() if key != MARK}


async def test_many_instances_are_tagged_and_untagged_in_one_call_each(aws: Aws) -> None:
    machines = aws.launch(30)
    async with working(aws) as work:
        work.put(**provider_ids(machines))
        await work.rest(30)
        assert work.calls() == {"DescribeInstances": 1, "CreateTags": 1}
        assert all(own_tags(aws, machine) == TAGS for machine in machines)
        work.put(**dict.fromkeys(provider_ids(machines[:20]), ""))
        await work.rest(50)
        assert work.calls() == {"DescribeInstances": 1, "DeleteTags": 1}
        assert work.controller.details("") == {"nodes": "none"}, "no Node that is gone is kept"
    assert [own_tags(aws, machine) for machine in machines] == [{}] * 20 + [TAGS] * 10


async def test_what_is_right_is_not_written_and_what_is_not_is_corrected(aws: Aws) -> None:
    machines = aws.launch(4)
    ids = [machine["InstanceId"] for machine in machines]
    aws.ec2.create_tags(Resources=ids[1:], Tags=tag_list(TAGS | {"mine": "1"}))
    aws.tag(ids[3], "team", "db")
    async with working(aws) as work:
        work.put(**provider_ids(machines[1:3]))
        await work.rest(2)
        assert work.calls() == {"DescribeInstances": 1}
        work.put(**provider_ids(machines))
        await work.rest(4)
        assert work.calls() == {"DescribeInstances": 1, "CreateTags": 2}
        assert own_tags(aws, machines[3]) == TAGS | {"mine": "1"}


async def test_only_our_own_tags_are_taken_away(aws: Aws) -> None:
    (machine,) = aws.launch()
    async with working(aws) as work:
        work.put(a=f"aws:///z/{machine['InstanceId']}")
        await work.rest(1)
        aws.tag(machine["InstanceId"], "team", "db")
        aws.tag(machine["InstanceId"], "mine", "1")
        work.put(a="")
        await work.rest(2)
    assert own_tags(aws, machine) == {"team": "db", "mine": "1"}


async def test_an_instance_keeps_its_tags_while_any_node_has_it(aws: Aws) -> None:
    one, other = aws.launch(2)
    async with working(aws) as work:
        named = f"aws:///z/{one['InstanceId']}"
        work.put(a=named, b=named)
        await work.rest(1)
        work.put(a="")
        work.put(a=f"aws:///z/{other['InstanceId']}")
        await work.rest(3)
        assert own_tags(aws, one) == own_tags(aws, other) == TAGS
        work.put(b=f"aws:///z/{other['InstanceId']}")
        await work.rest(4)
    assert (own_tags(aws, one), own_tags(aws, other)) == ({}, TAGS)


async def test_a_node_without_an_instance_of_ours_is_nothing_to_it(aws: Aws) -> None:
    async with working(aws) as work:
        work.put(a="gce://p/z/i-01234567", b="aws:///z/fargate-ip-10-0-0-1", c="other")
        work.put(**provider_ids(aws.launch()))
        status = await work.rest(1)
    assert (status["done"], status["objects"]) == (1, 1)


async def test_an_instance_that_is_not_ours_is_done_with_when_its_node_is_gone(aws: Aws) -> None:
    (foreign,) = aws.launch()
    aws.ec2.create_tags(Resources=[foreign["InstanceId"]], Tags=tag_list(TAGS))
    aws.untag(foreign["InstanceId"])
    async with working(aws) as work:
        work.put(**provider_ids([foreign]))
        await work.rest(0, pending=1)
        work.put(**dict.fromkeys(provider_ids([foreign]), ""))
        status = await work.rest(1)
    assert (status["pending"], own_tags(aws, foreign)) == (0, TAGS)


async def test_a_node_with_another_instance_each_time_costs_few_reads(aws: Aws) -> None:
    """Its kubelet registers it again, and may name any."""
    async with working(aws) as work:
        queue = work.controller._context.queue
        for turn in range(4 * READS):
            work.put(odd=f"aws:///z/i-{turn:017x}")
            await until(lambda: not (queue.is_busy or queue.parked))
        assert work.calls()["DescribeInstances"] <= READS + 5


async def test_what_cannot_be_tagged_says_why_and_holds_up_no_other(aws: Aws) -> None:
    foreign, full, gone, fine = aws.launch(4)
    more = {f"key-{number}": "1" for number in range(MAX_TAGS - 2)}
    aws.untag(foreign["InstanceId"])
    aws.ec2.create_tags(Resources=[full["InstanceId"]], Tags=tag_list(more))
    aws.ec2.terminate_instances(InstanceIds=[gone["InstanceId"]])
    machines = [foreign, full, gone, fine]
    async with working(aws) as work:
        work.put(**provider_ids([*machines, {"InstanceId": "i-01234567"}]))
        reasons = (await work.rest(1, pending=4))["reasons"]
    assert f"lacks tag:{MARK}" in reasons[foreign["InstanceId"]]
    assert "no room" in reasons[full["InstanceId"]]
    assert "EC2 has no instance" in reasons[gone["InstanceId"]]
    assert "EC2 has no instance" in reasons["i-01234567"]
    assert {"team", "cost-centre"}.isdisjoint(own_tags(aws, foreign) | own_tags(aws, full))
    assert own_tags(aws, fine) == TAGS


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(503, "RequestLimitExceeded", "Request limit exceeded."),
        Refusal(403, "UnauthorizedOperation", "You are not authorized."),
        Refusal(500, "InternalError", "Try again."),
        Refusal(400, "InvalidInstanceID.NotFound", "The instance ID '{gone}' does not exist"),
    ],
    ids=lambda refusal: refusal.code,
)
async def test_a_write_that_failed_is_done_again_injected(aws: Aws, refusal: Refusal) -> None:
    machines = aws.launch(3)
    refused: list[Request] = []
    reported = replace(refusal, message=refusal.message.format(gone=machines[0]["InstanceId"]))

    def refuse_once(request: Request) -> Refusal | None:
        if request.operation != "CreateTags" or refused:
            return None
        refused.append(request)
        return reported

    aws.proxy.rule = refuse_once
    async with working(aws) as work:
        work.put(**provider_ids(machines))
        await work.rest(2 if "NotFound" in refusal.code else 3)
    assert all(own_tags(aws, machine) == TAGS for machine in machines[1:])


async def test_no_more_is_compared_than_the_rate_lets_through(aws: Aws) -> None:
    machines = aws.launch(9)
    slow = replace(SETTINGS, tagging_controller_rate_limit=0.01, tagging_controller_burst_limit=3)
    async with working(aws, slow) as work:
        work.put(**provider_ids(machines))
        await until(lambda: work.runner.status()["done"] == 3)
        await until(lambda: work.runner.status()["queue"]["parked"] == 6)
    assert sum(own_tags(aws, machine) == TAGS for machine in machines) == 3


@pytest.mark.parametrize(
    ("tags", "resources", "complaint"),
    [
        ({}, ["instance"], "--tags: must not be empty"),
        (TAGS, [], "--resources: must not be empty"),
        (TAGS, ["instance", "volume"], "--resources: 'volume' cannot be tagged"),
        ({"aws:team": "web"}, ["instance"], "'aws:team' is reserved by AWS"),
        ({"AWS:team": "web"}, ["instance"], "'AWS:team' is reserved by AWS"),
        ({MARK: "owned"}, ["instance"], "marks the owner of an object"),
        ({"KubernetesCluster": "kit"}, ["instance"], "marks the owner of an object"),
        ({"": "web"}, ["instance"], "a length that AWS does not take"),
        ({"k" * 129: "web"}, ["instance"], "a length that AWS does not take"),
        ({"team": "v" * 257}, ["instance"], "a length that AWS does not take"),
        ({f"k{n}": "" for n in range(51)}, ["instance"], "--tags: are more than 50"),
    ],
)
def test_invalid_flags_are_reported_before_anything_is_done(
    tags: dict[str, str], resources: list[str], complaint: str
) -> None:
    settings = replace(SETTINGS, tags=tags, resources=tuple(resources))
    context = controller_context(tagging, None, Cluster(), FakePort(), settings)
    with pytest.raises(ConfigurationFaults, match=complaint):
        tagging.new_controller(context)
    longest = replace(SETTINGS, tags={"k" * 128: "v" * 256, "empty": ""})
    assert list(tagging.faults(longest)) == []
