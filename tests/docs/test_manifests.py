"""The manifests of Services on the pages of the clouds are what the providers accept."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import yaml

from ccm.cloud.testkit.harness import service
from ccm.model.objects import Json
from ccm.model.service import Feature, Service
from ccm.providers.aws.elb.annotations import NLB, load_balancer_type
from ccm.providers.aws.elb.classic_desired import desired_classic_elb
from ccm.providers.aws.elb.load_balancers import AwsLoadBalancers
from ccm.providers.aws.elb.nlb_desired import desired_nlb
from ccm.providers.aws.elb.request import read_request as read_aws
from ccm.providers.aws.subnets import Subnet
from ccm.providers.aws.tags import ClusterTag
from ccm.providers.azure.config import AzureConfig
from ccm.providers.azure.lb.load_balancers import AzureLoadBalancers
from ccm.providers.azure.lb.request import read_request as read_azure
from ccm.providers.digitalocean.config import NETWORK
from ccm.providers.digitalocean.lb.annotations import PREFIX
from ccm.providers.digitalocean.lb.load_balancers import DigitalOceanLoadBalancers
from ccm.providers.digitalocean.lb.request import read_request as read_digitalocean
from ccm.providers.gce.config import Place
from ccm.providers.gce.lb.load_balancers import GceLoadBalancers
from ccm.providers.gce.lb.request import read_request as read_gce
from ccm.providers.incus.config import BalancerSection as IncusSection
from ccm.providers.incus.ids import Cluster as IncusCluster
from ccm.providers.incus.lb.load_balancers import IncusLoadBalancers
from ccm.providers.incus.lb.request import read_request as read_incus
from ccm.providers.openstack.config import BalancerSection as OctaviaSection
from ccm.providers.openstack.ids import Cluster as OctaviaCluster
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.lb.request import read_request as read_octavia
from ccm.providers.simulated.load_balancers import SimulatedLoadBalancers, desired_record
from ccm.settings import Settings
from tests.docs.pages import DOCS
from workers.service.plan import Capabilities, is_of_our_class, why_unsupported

KINDS = ("An ingress controller", "TLS", "PROXY protocol", "Internal", "UDP")
SUBNETS = [Subnet("subnet-a", "a", "10.0.0.0/24", {}, True)]


def aws(asked: Service) -> Sequence[str]:
    kind = load_balancer_type(asked, NLB)
    request = read_aws(asked, kind, ClusterTag("kit"))
    if kind == NLB:
        desired_nlb(request, SUBNETS, (), "kit", None)
    else:
        desired_classic_elb(request, SUBNETS, ["sg-1"], (), None)
    return [*request.annotations.ignored, *request.annotations.notes]


def azure(asked: Service) -> Sequence[str]:
    config = AzureConfig(vnet_name="vnet", subnet_name="nodes")
    return read_azure(asked, config, "kit").warnings


def digitalocean(asked: Service) -> Sequence[str]:
    certificate = asked.annotations.get(f"{PREFIX}certificate-id", "")
    return read_digitalocean(asked, NETWORK, "", certificate).warnings


def gce(asked: Service) -> Sequence[str]:
    return read_gce(asked, Place("kit", "kit", "europe-west1", "network", "subnetwork")).warnings


def incus(asked: Service) -> Sequence[str]:
    return read_incus(asked, IncusSection(), IncusCluster("kit")).warnings


def openstack(asked: Service) -> Sequence[str]:
    return read_octavia(asked, OctaviaSection(), {}, OctaviaCluster("kit")).annotations.warnings


def simulated(asked: Service) -> Sequence[str]:
    return () if desired_record(asked) else ("nothing",)


CLOUDS: dict[str, tuple[frozenset[Feature], Callable[[Service], Sequence[str]]]] = {
    "aws": (AwsLoadBalancers.supported_features, aws),
    "azure": (AzureLoadBalancers.supported_features, azure),
    "digitalocean": (DigitalOceanLoadBalancers.supported_features, digitalocean),
    "gce": (GceLoadBalancers.supported_features, gce),
    "incus": (IncusLoadBalancers.supported_features, incus),
    "openstack": (OctaviaLoadBalancers.supported_features, openstack),
    "simulated": (SimulatedLoadBalancers.supported_features, simulated),
}
OTHERS = ("proxmox", "vsphere")
"""Clouds without load balancers, where Services are another controller's."""


def manifests(cloud: str) -> Iterator[tuple[str, Json]]:
    """Heading and object of each manifest of a Service on the page of a cloud."""
    page = (DOCS / "providers" / f"{cloud}-services.md").read_text()
    section = page.partition("\n## Manifests to copy\n")[2].partition("\n## ")[0]
    for part in section.split("\n### ")[1:]:
        for block in re.findall(r"^```yaml\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
            yield part.partition("\n")[0], yaml.safe_load(block)


def stored(manifest: Json) -> Service:
    """The Service as the API server has it: with node ports and its other defaults."""
    metadata, spec = manifest["metadata"], dict(manifest["spec"])
    spec["ports"] = [
        {**one, "nodePort": 30000 + number} for number, one in enumerate(spec["ports"])
    ]
    if spec.get("externalTrafficPolicy") == "Local":
        spec["healthCheckNodePort"] = 32000
    return service(metadata["name"], metadata.get("annotations"), **spec)


def cases(clouds: Sequence[str]) -> list[Any]:
    return [
        pytest.param(cloud, manifest, id=f"{cloud}-{heading}")
        for cloud in clouds
        for heading, manifest in manifests(cloud)
    ]


@pytest.mark.parametrize("cloud", [*CLOUDS, *OTHERS])
def test_each_cloud_has_a_manifest_of_each_kind(cloud: str) -> None:
    headings = [heading for heading, _ in manifests(cloud)]
    assert [kind for kind in KINDS if not any(one.startswith(kind) for one in headings)] == []


@pytest.mark.parametrize(("cloud", "manifest"), cases([*CLOUDS]))
def test_the_provider_accepts_it_without_a_warning(cloud: str, manifest: Json) -> None:
    features, read = CLOUDS[cloud]
    asked = stored(manifest)
    assert why_unsupported(asked, Capabilities.of(Settings(), features, ())) == ""
    assert [*read(asked)] == []


@pytest.mark.parametrize(("cloud", "manifest"), cases(OTHERS))
def test_without_load_balancers_it_is_left_to_another_controller(
    cloud: str, manifest: Json
) -> None:
    assert not is_of_our_class(stored(manifest), Settings().load_balancer_classes)
