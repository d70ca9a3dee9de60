"""The cloud-config file as upstream has it, and what is told about a wrong one."""

from dataclasses import replace

import pytest

from ccm.errors import CloudError, ConfigurationFaults
from ccm.providers.aws.config import AwsConfig, Endpoint, SharedProbe, read_config
from ccm.providers.aws.provider import OwnInstance, region_of

FULL = """
; as operators have it
[global]
Zone = us-west-2a                # of this machine
vpc = vpc-1
SubnetID="subnet-1"
RouteTableID = rtb-1
RoleARN = arn:aws:iam::1:role/ccm
KubernetesClusterID = "with # in it"
DisableSecurityGroupIngress
ElbSecurityGroup = sg-1
NLBSecurityGroupMode = Managed
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 10300
SupportedTopologyInstanceTypePattern = ^x[0-9]
CallTimeout = 3s
LoadBalancerType = nlb
[ServiceOverride "1"]
  Service = elasticloadbalancing
  Region = us-west-2
  URL = https://elb.internal
  SigningRegion = us-west-2
  SigningMethod = v4
"""

ELB = Endpoint("https://elb.internal", "us-west-2")


def test_all_keys_of_upstream_are_read() -> None:
    assert read_config(FULL.encode(), "") == AwsConfig(
        zone="us-west-2a",
        vpc="vpc-1",
        subnet_id="subnet-1",
        route_table_id="rtb-1",
        role_arn="arn:aws:iam::1:role/ccm",
        cluster_id="with # in it",
        manages_node_ingress=False,
        elb_security_group="sg-1",
        manages_nlb_groups=True,
        families=("ipv6", "ipv4"),
        shared_probe=SharedProbe(10300, "/healthz"),
        topology_types="^x[0-9]",
        load_balancer_type="nlb",
        call_timeout=3.0,
        endpoints={("elb", "us-west-2"): ELB, ("elbv2", "us-west-2"): ELB},
    )


OVERRIDES = [
    ("ec2 r", "ec2"),
    ("EC2 r", "ec2"),
    ("Elastic Load Balancing r", "elb"),
    ("Elastic Load Balancing v2 r", "elbv2"),
    ("elastic load balancing v2 r", "elbv2"),
    ("elasticloadbalancing r", "elb elbv2"),
    ("STS r", "sts"),
    ("sts r", "sts"),
    ("KMS r", ""),
    ("EC2 elsewhere", ""),
    ("ec2imds elsewhere", "imds"),
]


@pytest.mark.parametrize(("override", "services"), OVERRIDES)
def test_an_override_is_for_a_service_in_a_region(override: str, services: str) -> None:
    config = read_config(overrides(override).encode(), "")
    known = ("ec2", "elb", "elbv2", "sts")
    found = {one: config.endpoint(one, "r") for one in known} | {"imds": config.endpoint("imds")}
    assert [one for one, endpoint in found.items() if endpoint] == services.split()


def test_each_region_has_its_override_and_the_name_of_the_sdk_counts_first() -> None:
    """As where a file serves an older upstream, too."""
    text = overrides(
        "EC2 r", "EC2 s", "ec2 r", "elasticloadbalancing r", "Elastic Load Balancing r"
    )
    config = read_config(text.encode(), "")
    urls = {key: endpoint.url for key, endpoint in config.endpoints.items()}
    hosts = {("ec2", "r"): 0, ("ec2", "s"): 1, ("elbv2", "r"): 3, ("elb", "r"): 4}
    assert urls == {key: f"https://{number}" for key, number in hosts.items()}


def overrides(*wanted: str) -> str:
    """Sections for these services and regions, each with a host of its own."""
    return "".join(
        f'[ServiceOverride "{number}"]\nService = {service}\nRegion = {region}\n'
        f"URL = https://{number}\nSigningRegion = r\n"
        for number, (service, _, region) in enumerate(one.rpartition(" ") for one in wanted)
    )


def test_an_empty_file_is_all_defaults() -> None:
    assert read_config(b"", "") == AwsConfig()


def test_the_legacy_tag_is_the_cluster_id() -> None:
    assert read_config(b"[Global]\nKubernetesClusterTag = old", "").cluster_id == "old"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "[Global]\nzona = x",
            "aws.conf:2 [Global] zona: is not a key of this file; did you mean Zone?",
        ),
        ("[Global]\nVPC", "aws.conf:2 [Global] VPC: has no value; write it as key = value"),
        ("[Global]\nNodeIPFamilies = ipv5", "NodeIPFamilies: is ipv5"),
        ("[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv4", "NodeIPFamilies"),
        ("[Global]\nDisableSecurityGroupIngress = perhaps", "is 'perhaps'"),
        ("[Global]\nNLBSecurityGroupMode = managed", "give Managed, or leave it out"),
        ("[Global]\nKubernetesClusterID = a\nKubernetesClusterTag = b", "differ"),
        ("[Global]\nSupportedTopologyInstanceTypePattern = [", "give a regular expression"),
        ("[Global]\nCallTimeout = soon", "CallTimeout: is 'soon'"),
        ("[Global]\nLoadBalancerType = alb", "LoadBalancerType: is 'alb'"),
        ("[Globe]\nx = 1", ":1 [Globe]: is not a section"),
        ('[ServiceOverride "1"]\nService = ec2', "Region: is missing"),
        ('[ServiceOverride "1"]\nService = s3', "Service: is 's3'; use one of EC2, Elastic"),
        (
            "".join(f'[ServiceOverride "{n}"]\nService = EC2\nRegion = r\n' for n in "12"),
            "is the second one of EC2 in r",
        ),
        ('[ServiceOverride "1"]\nSigningMethod = v2', "SigningMethod: is not v4"),
        ("no section = 1", "aws.conf:1: is not a section or a key; write it as key = value"),
        ('[Global]\nZone = "open', ":2: has a quote that is not closed"),
    ],
)
def test_what_is_wrong_is_reported_with_where_and_what_to_do(text: str, reported: str) -> None:
    with pytest.raises(ConfigurationFaults) as faults:
        read_config(text.encode(), "/etc/aws.conf")
    assert reported in str(faults.value)
    assert str(faults.value).startswith("/etc/aws.conf")


@pytest.mark.parametrize(
    ("config", "environment", "machine", "region"),
    [
        (AwsConfig(region="eu-west-1", zone="us-east-1a"), "us-west-1", "", "eu-west-1"),
        (AwsConfig(zone="us-gov-west-1b"), "us-west-1", "", "us-gov-west-1"),
        (AwsConfig(zone="us-west-2-lax-1a"), "", "", "us-west-2"),
        (AwsConfig(), "us-west-1", "eu-west-1", "us-west-1"),
        (AwsConfig(), "", "eu-west-1", "eu-west-1"),
    ],
)
def test_the_region_is_configured_of_the_environment_or_the_machines(
    config: AwsConfig,
    environment: str,
    machine: str,
    region: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if environment:
        monkeypatch.setenv("AWS_DEFAULT_REGION", environment)
    assert region_of(config, OwnInstance(region=machine)) == region


@pytest.mark.parametrize(
    "region", ["us-gov-east-1", "cn-northwest-1", "us-isob-east-1", "mx-central-7"]
)
def test_regions_of_all_partitions_and_new_ones_are_taken(region: str) -> None:
    assert region_of(AwsConfig(region=region), OwnInstance()) == region


def test_a_region_that_cannot_be_is_reported_with_the_nearest() -> None:
    """An override makes any name a region."""
    config = AwsConfig(region="eu-centrall-1")
    with pytest.raises(
        ConfigurationFaults,
        match="no such region: 'eu-centrall-1'; did you mean eu-central-1",
    ):
        region_of(config, OwnInstance())
    own = replace(config, endpoints={("ec2", "eu-centrall-1"): ELB})
    assert region_of(own, OwnInstance()) == "eu-centrall-1"


@pytest.mark.parametrize("said", ["", "<html>busy</html>", "x" * 1000])
def test_what_the_metadata_service_says_is_no_fault_of_the_configuration(said: str) -> None:
    """A process that ends for such a fault stays down until a person acts."""
    with pytest.raises(CloudError, match="metadata service reports no region") as raised:
        region_of(AwsConfig(), OwnInstance("i-1", said))
    assert len(str(raised.value)) < 200


def test_no_region_anywhere_is_reported_with_what_to_do() -> None:
    with pytest.raises(ConfigurationFaults, match="set Region in the cloud-config or AWS_REGION"):
        region_of(AwsConfig(), OwnInstance())
