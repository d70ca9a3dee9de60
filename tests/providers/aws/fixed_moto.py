"""What moto answers otherwise than AWS where controllers notice, put right; no server in here."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import RulesPerSecurityGroupLimitExceededError
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.models.security_groups import SecurityGroupBackend, SecurityGroupRule
from moto.ec2.models.subnets import Subnet
from moto.ec2.responses import EC2Response
from moto.elb import models as elb
from moto.elbv2 import models as elbv2
from moto.elbv2.exceptions import (
    DuplicateListenerError,
    DuplicateLoadBalancerName,
    ELBClientError,
)

NETWORK_PROTOCOLS = ("TLS", "TCP", "UDP", "TCP_UDP")
Before = Callable[..., Any]
"""The method of moto whose place is taken; the functions here get it first."""


def fix(rules_per_group: int) -> None:
    """Let moto answer as AWS does, and a security group have so many rules."""

    def count_rules(
        _: Before, __: object, ___: object, count: int, *sources: Sequence[object] | None
    ) -> None:
        """Refuse what is too much; of `sources` the networks and groups come first."""
        if count + sum(len(one or ()) for one in sources[:2]) > rules_per_group:
            raise RulesPerSecurityGroupLimitExceededError

    limit = (SecurityGroupBackend, "_verify_group_will_respect_rule_count_limit")
    for (owner, name), function in {**METHODS, limit: count_rules}.items():
        before = getattr(owner, name, None)
        fixed = _method(function, before)
        setattr(owner, name, property(fixed) if isinstance(before, property) else fixed)


def _method(function: Callable[..., Any], before: Any) -> Callable[..., Any]:
    return lambda self, *args, **options: function(before, self, *args, **options)


# EC2


def each_instance_once(before: Before, self: Any, ids: Sequence[str], filters: Any = None) -> Any:
    """An instance may be named twice in one question."""
    return before(self, [*dict.fromkeys(ids)], filters)


def is_same_rule(_: Before, self: SecurityGroupRule, other: SecurityGroupRule) -> bool:
    """Rules are not told apart by what is said of their source."""
    return _identity(self) == _identity(other)


def _identity(rule: SecurityGroupRule) -> object:
    group = {key: value for key, value in (rule.source_group or {}).items() if key != "Description"}
    ports = None if rule.ip_protocol == "-1" else (rule.from_port, rule.to_port)
    ranges = [(rule.ip_range or {}).get(key) for key in ("CidrIp", "CidrIpv6")]
    return rule.ip_protocol, ports, ranges, group, rule.prefix_list_id


def ipv6_networks(before: Any, self: Subnet) -> Any:
    """The state of an IPv6 network is a word."""
    state = {"ipv6CidrBlockState": {"state": "associated"}}
    return [{**network, **state} for network in before.fget(self)]


def describe_topology(_: Before, self: EC2Response) -> ActionResult:
    """Where instances are whose type is one of those for accelerated computing."""
    instances = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
    layers = ["nn-1", "nn-2", "nn-3"]
    found = [
        {"InstanceId": one.id, "InstanceType": one.instance_type, "NetworkNodes": layers}
        for one in instances
        if one.instance_type.startswith("p")
    ]
    return ActionResult({"Instances": found})


# Classic Load Balancers


def make_classic(before: Before, self: Any, *args: Any, **options: Any) -> None:
    """It has a health check from its birth."""
    before(self, *args, **options)
    _take_instance_protocols(self, options["ports"])
    target = f"TCP:{self.listeners[0].instance_port}"
    self.health_check = elb.FakeHealthCheck("5", "10", "2", "30", target)


def make_listeners(before: Before, self: elb.ELBBackend, name: str, ports: Any) -> Any:
    made = before(self, name, ports)
    _take_instance_protocols(self.load_balancers[name], ports)
    return made


def instance_protocol(_: object, self: elb.FakeListener) -> str:
    return str(vars(self).get("spoken_behind", self.protocol))


def _take_instance_protocols(balancer: elb.LoadBalancer, ports: Sequence[Any]) -> None:
    """What listeners speak behind them is not always what they speak before them."""
    asked = {str(one["LoadBalancerPort"]): one for one in ports}
    for listener in balancer.listeners:
        if one := asked.get(str(listener.load_balancer_port)):
            vars(listener)["spoken_behind"] = str(
                one.get("InstanceProtocol") or one["Protocol"]
            ).upper()


# NLBs


def make_network(before: Before, self: Any, *args: Any, **options: Any) -> None:
    """Its name ends otherwise than that of a classic one."""
    before(self, *args, **options)
    if self.type == "network":
        name, region, rest = self.dns_name.split(".", 2)
        self.dns_name = f"{name}.elb.{region}.{rest.removeprefix('elb.')}"
        self.attrs["access_logs.s3.enabled"] = "false"


def delete_network(before: Before, self: Any, arn: str) -> None:
    """One that is protected stays."""
    balancer = self.load_balancers.get(arn)
    if balancer and balancer.attrs.get("deletion_protection.enabled") == "true":
        why = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
        raise ELBClientError("OperationNotPermitted", why)
    before(self, arn)


def make_target_group(before: Before, self: Any, *args: Any, **options: Any) -> None:
    """It has values for all attributes."""
    before(self, *args, **options)
    if self.protocol in NETWORK_PROTOCOLS:
        preserve, proxy = "preserve_client_ip.enabled", "proxy_protocol_v2.enabled"
        self.attributes |= {preserve: "true", proxy: "false"}


def make_or_find_target_group(before: Before, self: Any, name: str, **options: Any) -> Any:
    """Making one again that there is, is no error."""
    asked = options["protocol"], str(options["port"]), options["healthcheck_protocol"]
    for one in [*self.target_groups.values()]:
        found = one.protocol, str(one.port), one.health_check_protocol
        if one.name == name and found == asked:
            return one
    return before(self, name, **options)


def make_balancer(before: Before, self: Any, *, name: str, **options: Any) -> Any:
    """A name is one load balancer's."""
    if any(one.name == name for one in [*self.load_balancers.values()]):
        raise DuplicateLoadBalancerName
    return before(self, name=name, **options)


def describe_target_groups(before: Before, self: Any, balancer: str | None, *others: Any) -> Any:
    """One belongs to a load balancer as long as a listener forwards to it; there may be none."""
    groups = [*self.target_groups.values()]
    for group in groups:
        group.load_balancer_arns = [*_users_of(self, group.arn)]
    is_used = any(balancer in group.load_balancer_arns for group in groups)
    if balancer in self.load_balancers and not is_used:
        return []
    return before(self, balancer, *others)


def _users_of(backend: elbv2.ELBv2Backend, group: str) -> Iterator[str]:
    """The load balancers with a listener that forwards to a target group."""
    for balancer in [*backend.load_balancers.values()]:
        listeners = [*balancer.listeners.values()]
        actions = (action for listener in listeners for action in listener.default_actions)
        if any(group in backend._get_target_group_arns_from(action.data) for action in actions):
            yield balancer.arn


def make_listener(
    before: Before, self: Any, load_balancer_arn: str, **options: Any
) -> elbv2.FakeListener:
    """There is one for each port, and one without TLS has no policy for it."""
    balancer = self.load_balancers.get(load_balancer_arn)
    there = [str(one.port) for one in [*balancer.listeners.values()]] if balancer else []
    if str(options["port"]) in there:
        raise DuplicateListenerError
    made: elbv2.FakeListener = before(self, load_balancer_arn=load_balancer_arn, **options)
    if made.protocol in ("TCP", "UDP", "TCP_UDP"):
        vars(made)["ssl_policy"] = None
    return made


def modify_listener(
    before: Before,
    self: Any,
    arn: str,
    port: Any = None,
    protocol: Any = None,
    policy: Any = None,
    certificates: Any = None,
    actions: Any = None,
) -> elbv2.FakeListener:
    """The protocols of an NLB are protocols, too."""
    is_network = protocol in NETWORK_PROTOCOLS
    known = None if is_network else protocol
    listener: elbv2.FakeListener = before(self, arn, port, known, policy, certificates, actions)
    if is_network:
        arns = [one["CertificateArn"] for one in certificates or ()]
        listener.protocol, listener.certificates = protocol, arns
        listener.certificate = arns[0] if arns else None
        if protocol != "TLS":
            vars(listener)["ssl_policy"] = None
    return listener


METHODS: dict[tuple[type, str], Callable[..., Any]] = {
    (InstanceBackend, "get_reservations_by_instance_ids"): each_instance_once,
    (SecurityGroupRule, "__eq__"): is_same_rule,
    (Subnet, "ipv6_cidr_block_association_set"): ipv6_networks,
    (EC2Response, "describe_instance_topology"): describe_topology,
    (elb.LoadBalancer, "__init__"): make_classic,
    (elb.FakeListener, "instance_protocol"): instance_protocol,
    (elb.ELBBackend, "create_load_balancer_listeners"): make_listeners,
    (elbv2.FakeLoadBalancer, "__init__"): make_network,
    (elbv2.ELBv2Backend, "create_load_balancer"): make_balancer,
    (elbv2.ELBv2Backend, "delete_load_balancer"): delete_network,
    (elbv2.FakeTargetGroup, "__init__"): make_target_group,
    (elbv2.ELBv2Backend, "create_target_group"): make_or_find_target_group,
    (elbv2.ELBv2Backend, "describe_target_groups"): describe_target_groups,
    (elbv2.ELBv2Backend, "create_listener"): make_listener,
    (elbv2.ELBv2Backend, "modify_listener"): modify_listener,
}
