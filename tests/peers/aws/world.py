"""An emulated account, in which the controllers of AWS are compared."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ccm.model.objects import Json
from ccm.providers.aws.api_actions import API_ACTIONS
from tests.peers import upstream
from tests.peers.aws import nodes, picture, services
from tests.peers.world import UPSTREAM, CountedWorld, Seen
from tests.providers.aws.emulator import CREDENTIALS, Emulator
from tests.providers.aws.proxy import Proxy, Request
from tests.providers.aws.world import ZONES, Account, config_text
from tests.support.kube.build import PEERS, find_binaries
from tests.support.kube.cluster import RealCluster
from tests.support.needed import needed
from tests.support.running import Running, Supervisor, Where

NOT_BUILT = "upstream's controllers are not built: run `make peers`"
RULES_PER_GROUP = 1000
"""What AWS allows at most: the nodes' group has rules of all Services."""
EACH_PASS = ("ec2:CreateRoute", "ec2:ModifyInstanceAttribute")
"""What upstream's route controller tries at each pass when it does not come to an end."""
ARN = r"arn:aws:elasticloadbalancing:\S+?/(?:app/)?([^/ ]+)\S*"
"""That of a load balancer, a listener or a target group, whose name is its second part."""


@dataclass
class AwsWorld(CountedWorld):
    """One account behind a proxy."""

    cases = services.CASES
    shapes = tuple(nodes.SHAPES)
    plain = nodes.PLAIN
    late = tuple(nodes.LATER)
    budgets = frozenset(action.budget for action in API_ACTIONS.values())

    account: Account = field(kw_only=True)
    proxy: Proxy = field(kw_only=True)

    def prepare(self) -> None:
        account = self.account
        for zone in ZONES:
            self.names[f"public-{zone}"] = account.public[zone]
            self.names[f"private-{zone}"] = account.private[zone]
        for name in ("extra", "another"):
            self.names[name] = account.make_group(name)
        acm = account.emulator.client("acm")
        for name in ("cert", "other-cert"):
            answer = acm.request_certificate(DomainName=f"{name}.example.com")
            self.names[name] = answer["CertificateArn"]
        for number in range(len(ZONES)):
            made = account.ec2.allocate_address(Domain="vpc")
            self.names[f"eip-{number}"] = made["AllocationId"]
        for name, shape in (nodes.SHAPES | nodes.LATER).items():
            self.machines[name] = nodes.launch(account, shape)

    def registration(self, shape: str, pod_cidr: str) -> Json:
        asked = (nodes.SHAPES | nodes.LATER)[shape]
        return nodes.manifest(asked, self.machines[shape], pod_cidr)

    def add_machine(self, name: str, who: str) -> Json:
        shape = nodes.SHAPES["public"]
        return nodes.manifest(shape, nodes.launch(self.account, shape), "")

    def end_machine(self, node: Json) -> None:
        instance = node["spec"]["providerID"].rpartition("/")[2]
        self.account.ec2.terminate_instances(InstanceIds=[instance])

    def start(self, who: str, config: str) -> Running:
        path = self.directory / f"aws{config}.conf"
        # With these upstream's starts outside of AWS.
        extra = f"Zone = {ZONES[0]}\nSubnetID = {self.account.public[ZONES[0]]}"
        path.write_text(config_text(self.account, self.proxy.url, extra))
        kubeconfig, url = self.cluster.kubeconfig("admin"), self.proxy.url
        flags = self.flags_of(who)
        if who == UPSTREAM:
            return upstream.aws(self.directory, self.binaries, kubeconfig, path, url, *flags)
        where = Where(self.directory, kubeconfig, path)
        return Supervisor(where, "--cloud-provider=aws", *flags)

    def calls(self) -> int:
        return len(self.proxy.requests)

    def balancer_calls(self) -> int:
        return sum(request.client != "ec2" for request in self.proxy.requests)

    def doings(self) -> object:
        return sum(map(_is_doing, self.proxy.requests))

    def busy(self) -> list[str]:
        return [one.name for one in (*self.proxy.unanswered.values(),) if _is_doing(one)]

    def writes(self) -> list[str]:
        return [*_described(self.proxy.requests)]

    def forget_calls(self) -> None:
        self.proxy.reset()

    def roles(self) -> Mapping[str, str]:
        found = picture.roles(self.account, self.machines)
        for name, uid in self.uids.items():
            found["a" + uid.replace("-", "")[:31]] = f"lb-of-{name}"
        return found

    def seen(self) -> Seen:
        return picture.seen(self.account, self.machines)

    def is_served(self, service: str, port: int, seen: Set[str]) -> bool:
        kinds = ("classic", "network")
        return any(f"{kind} lb-of-{service} listener {port} Protocol" in seen for kind in kinds)


@contextmanager
def aws_world(kube_binaries: Path, directory: Path) -> Iterator[AwsWorld]:
    """With a cluster and an account of its own."""
    peers = needed(find_binaries(PEERS), NOT_BUILT)
    with (
        pytest.MonkeyPatch.context() as patch,
        RealCluster.start(kube_binaries, directory / "kube") as cluster,
        Emulator(directory, RULES_PER_GROUP) as emulator,
        Proxy(emulator.url) as proxy,
    ):
        for name, value in (CREDENTIALS | {"AWS_EC2_METADATA_DISABLED": "true"}).items():
            patch.setenv(name, value)
        account = Account.make(emulator)
        yield AwsWorld(directory, peers, cluster, account=account, proxy=proxy)


def _is_doing(request: Request) -> bool:
    """Whether the call is part of something that ends."""
    is_write = request.is_write and request.name not in EACH_PASS
    return request.client != "ec2" or is_write


def _described(requests: Sequence[Request]) -> Iterator[str]:
    """The writes among these: the call, and its parameters without their names."""
    for request in requests:
        if request.is_write:
            given = sorted(request.parameters.items())
            values = [value for name, value in given if name not in ("Action", "Version")]
            yield re.sub(ARN, r"\1", " ".join([request.name, *values]))
