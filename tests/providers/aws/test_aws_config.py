"""The cloud-config file as upstream has it, and what is told about a wrong one."""

import pytest

from ccm.errors import ConfigurationFaults
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
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 10300
CallTimeout = 3s
LoadBalancerType = nlb
[ServiceOverride "1"]
  Service = elasticloadbalancing
  Region = us-west-2
  URL = https://elb.internal
  SigningRegion = us-west-2
  SigningMethod = v4
"""

ELB = Endpoint("us-west-2", "https://elb.internal", "us-west-2")


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
        families=("ipv6", "ipv4"),
        shared_probe=SharedProbe(10300, "/healthz"),
        load_balancer_type="nlb",
        call_timeout=3.0,
        endpoints={"elb": ELB, "elbv2": ELB},
    )


def test_an_empty_file_is_all_defaults() -> None:
    assert read_config(b"", "") == AwsConfig()


def test_the_legacy_tag_is_the_cluster_id() -> None:
    assert read_config(b"[Global]\nKubernetesClusterTag = old", "").cluster_id == "old"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[Global]\nzona = x", "[Global] zona: is not a key"),
        ("[Global]\nNodeIPFamilies = ipv5", "NodeIPFamilies: is ipv5"),
        ("[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv4", "NodeIPFamilies"),
        ("[Global]\nDisableSecurityGroupIngress = perhaps", "is 'perhaps'"),
        ("[Global]\nNLBSecurityGroupMode = Managed", "cannot be honoured"),
        ("[Global]\nKubernetesClusterID = a\nKubernetesClusterTag = b", "differ"),
        ("[Global]\nCallTimeout = soon", "CallTimeout: is 'soon'"),
        ("[Global]\nLoadBalancerType = alb", "LoadBalancerType: is 'alb'"),
        ("[Globe]\nx = 1", "[globe]: is not a section"),
        ('[ServiceOverride "1"]\nService = ec2', "region: is missing"),
        ('[ServiceOverride "1"]\nService = s3', "service: is 's3'"),
        ('[ServiceOverride "1"]\nSigningMethod = v2', "signingmethod: is not v4"),
        ("no section = 1", "line 1 is not understood"),
        ('[Global]\nZone = "open', "line 2 is not understood"),
    ],
)
def test_what_is_wrong_is_told_with_where_and_what_to_do(text: str, told: str) -> None:
    with pytest.raises(ConfigurationFaults) as faults:
        read_config(text.encode(), "/etc/aws.conf")
    assert told in str(faults.value)
    assert str(faults.value).startswith("/etc/aws.conf")


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigurationFaults) as faults:
        read_config(b"[Global]\na = 1\nb = 2\nCallTimeout = -1s", "")
    assert len(faults.value.faults) == 3


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


def test_no_region_anywhere_is_told_with_what_to_do() -> None:
    with pytest.raises(ConfigurationFaults, match="set Region in the cloud-config or AWS_REGION"):
        region_of(AwsConfig(), OwnInstance())
