"""Reading a Classic Load Balancer from its API."""

from collections.abc import Mapping, Sequence

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.elb.classic_desired import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicElb,
    ClassicListener,
)
from ccm.providers.aws.elb.request import ElbHealthCheck
from ccm.providers.aws.tags import ClusterTag, Tags

_TLS_PREFIX = TLS_POLICY.format("")


def find_classic_elb(api: AwsApi, name: str) -> Json | None:
    """The record of the load balancer with this name, whoever owns it."""
    call, member = "elb:DescribeLoadBalancers", "LoadBalancerDescriptions"
    return api.find_one(call, member, LoadBalancerNames=[name])


def describe_classic_elb(api: AwsApi, service: Service, tag: ClusterTag) -> ClassicElb | None:
    """What there is; one of the right name that is not ours is `Refused`."""
    name = service.default_balancer_name
    record = find_classic_elb(api, name)
    if record is None:
        return None
    tags = describe_tags(api, [name])[name]
    if not tag.owns_for(service, tags):
        raise Refused(f"load balancer {name} carries the tags of somebody else")
    answer = api.call("elb:DescribeLoadBalancerAttributes", LoadBalancerName=name)
    return read_elb(record, tags, mapping(answer.get("LoadBalancerAttributes")))


def describe_tags(api: AwsApi, names: Sequence[str]) -> dict[str, Tags]:
    """The tags of load balancers, by name."""
    return api.describe_tags("elb:DescribeTags", "LoadBalancerName", names)


def read_elb(record: Json, tags: Tags, attributes: Mapping[str, object]) -> ClassicElb:
    """The load balancer in the API's three records of it."""
    descriptions = objects(record.get("ListenerDescriptions"))
    listeners = [_read_listener(mapping(one.get("Listener"))) for one in descriptions]
    servers = objects(record.get("BackendServerDescriptions"))
    return ClassicElb(
        name=text(record.get("LoadBalancerName")),
        is_internal=record.get("Scheme") == "internal",
        subnets=frozenset(record.get("Subnets") or ()),
        groups=tuple(record.get("SecurityGroups") or ()),
        listeners={listener.port: listener for listener in listeners},
        health_check=_read_health_check(mapping(record.get("HealthCheck"))),
        tags=tags,
        attributes={name: mapping(values) for name, values in attributes.items()},
        instances=frozenset(
            text(one.get("InstanceId")) for one in objects(record.get("Instances"))
        ),
        tls_policies={
            listener.port: name.removeprefix(_TLS_PREFIX)
            for listener, description in zip(listeners, descriptions, strict=True)
            for name in description.get("PolicyNames") or ()
            if name.startswith(_TLS_PREFIX)
        },
        proxied=frozenset(
            int(server.get("InstancePort", 0))
            for server in servers
            if PROXY_POLICY in (server.get("PolicyNames") or ())
        ),
        policies=frozenset(mapping(record.get("Policies")).get("OtherPolicies") or ()),
        hostname=text(record.get("DNSName")),
    )


def _read_listener(fields: Mapping[str, object]) -> ClassicListener:
    protocol = text(fields.get("Protocol")).upper()
    return ClassicListener(
        port=int(str(fields.get("LoadBalancerPort", 0))),
        protocol=protocol,
        node_port=int(str(fields.get("InstancePort", 0))),
        node_protocol=text(fields.get("InstanceProtocol")).upper() or protocol,
        certificate=text(fields.get("SSLCertificateId")),
    )


def _read_health_check(fields: Mapping[str, object]) -> ElbHealthCheck:
    """The health check in AWS's form `HTTP:32000/healthz`."""
    protocol, _, rest = text(fields.get("Target")).partition(":")
    port, slash, path = rest.partition("/")
    numbers = ("Interval", "Timeout", "HealthyThreshold", "UnhealthyThreshold")
    return ElbHealthCheck(
        protocol.upper(), port, slash + path, *(int(str(fields.get(n, 0))) for n in numbers)
    )
