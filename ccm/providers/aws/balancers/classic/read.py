"""Reading a classic load balancer, in two or three calls."""

from collections.abc import Mapping, Sequence

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.model.service import Service
from ccm.providers.aws.balancers.classic.state import (
    PROXY_POLICY,
    TLS_POLICY,
    ClassicBalancer,
    Listener,
    Seen,
)
from ccm.providers.aws.balancers.request import Check, is_marked, name_of
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.tags import Mark, Tags, read_tags

ABSENT = ("LoadBalancerNotFound", "AccessPointNotFound")
TAGS_AT_ONCE = 20
_TLS_PREFIX = TLS_POLICY.format("")


def find_balancer(api: AwsApi, name: str) -> Json | None:
    """The record of the balancer with this name, whoever owns it."""
    try:
        found = api.pages(
            "elb:DescribeLoadBalancers", "LoadBalancerDescriptions", LoadBalancerNames=[name]
        )
    except AwsError as error:
        if error.code in ABSENT:
            return None
        raise
    return found[0] if found else None


def read(api: AwsApi, service: Service, mark: Mark) -> Seen:
    """What there is; a balancer of the right name that is not ours is `Refused`."""
    name = name_of(service)
    record = find_balancer(api, name)
    if record is None:
        return Seen(None)
    tags = read_all_tags(api, [name])[name]
    if not is_marked(service, mark, tags):
        raise Refused(f"balancer {name} carries the tags of somebody else")
    answer = api.call("elb:DescribeLoadBalancerAttributes", LoadBalancerName=name)
    attributes = mapping(answer.get("LoadBalancerAttributes"))
    policies = mapping(record.get("Policies")).get("OtherPolicies") or []
    balancer = _balancer(record, tags, attributes)
    return Seen(balancer, text(record.get("DNSName")), frozenset(policies))


def read_all_tags(api: AwsApi, names: Sequence[str]) -> dict[str, Tags]:
    """The tags of balancers, many to a call."""
    found: dict[str, Tags] = {name: {} for name in names}
    for at in range(0, len(names), TAGS_AT_ONCE):
        asked = list(names[at : at + TAGS_AT_ONCE])
        answer = api.call("elb:DescribeTags", LoadBalancerNames=asked)
        for one in objects(answer.get("TagDescriptions")):
            found[text(one.get("LoadBalancerName"))] = read_tags(one.get("Tags"))
    return found


def _balancer(record: Json, tags: Tags, attributes: Mapping[str, object]) -> ClassicBalancer:
    descriptions = objects(record.get("ListenerDescriptions"))
    listeners = [_listener(mapping(one.get("Listener"))) for one in descriptions]
    servers = objects(record.get("BackendServerDescriptions"))
    return ClassicBalancer(
        name=text(record.get("LoadBalancerName")),
        is_internal=record.get("Scheme") == "internal",
        subnets=frozenset(record.get("Subnets") or ()),
        groups=tuple(record.get("SecurityGroups") or ()),
        listeners={listener.port: listener for listener in listeners},
        check=_check(mapping(record.get("HealthCheck"))),
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
    )


def _listener(fields: Mapping[str, object]) -> Listener:
    protocol = text(fields.get("Protocol")).upper()
    return Listener(
        port=int(str(fields.get("LoadBalancerPort", 0))),
        protocol=protocol,
        node_port=int(str(fields.get("InstancePort", 0))),
        node_protocol=text(fields.get("InstanceProtocol")).upper() or protocol,
        certificate=text(fields.get("SSLCertificateId")),
    )


def _check(fields: Mapping[str, object]) -> Check:
    """The check in AWS's form `HTTP:32000/healthz`."""
    protocol, _, rest = text(fields.get("Target")).partition(":")
    port, slash, path = rest.partition("/")
    numbers = ("Interval", "Timeout", "HealthyThreshold", "UnhealthyThreshold")
    return Check(
        protocol.upper(), port, slash + path, *(int(str(fields.get(n, 0))) for n in numbers)
    )
