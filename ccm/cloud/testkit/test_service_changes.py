"""What changes in a Service reaches the cloud, both ways, or is refused; it is never ignored."""

from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.adapter import Machine, Untestable
from ccm.cloud.testkit.harness import Harness, node_of, port, service
from ccm.errors import Refused
from ccm.model.service import SOURCE_RANGES, Feature, Service

pytestmark = pytest.mark.asyncio

LOCAL = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
NETWORKS = ["192.0.2.0/24", "198.51.100.0/24"]
BOTH_FAMILIES = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}

CHANGES: dict[str, dict[str, Any]] = {
    "another port": {"ports": [port(81)]},
    "one port more": {"ports": [port(80), port(443, node_port=30443)]},
    "another node port": {"ports": [port(80, node_port=30099)]},
    "a health check": LOCAL,
}
"""What every cloud has to do."""

FEATURES: dict[Feature, dict[str, Any]] = {
    Feature.SOURCE_RANGES: {"loadBalancerSourceRanges": NETWORKS},
    Feature.UDP: {"ports": [port(53, "UDP", 30053)]},
    Feature.MIXED_PROTOCOLS: {"ports": [port(53, "UDP", 30053), port(53, "TCP", 30053)]},
    Feature.SESSION_AFFINITY: {"sessionAffinity": "ClientIP"},
    Feature.DUAL_STACK: BOTH_FAMILIES,
}
"""What a cloud has to do when the provider says that it supports it.

TCP and UDP of one port number share a node port, as the API server gives it out.
"""

ALWAYS_CHANGEABLE = {Feature.SOURCE_RANGES}
"""Other features may be fixed after creation, as long as a change is rejected."""


async def check_converged(harness: Harness, asked: Service, machines: list[Machine]) -> None:
    """The cloud has what was asked, and asking again writes nothing."""
    await harness.check_balancer(asked, machines)
    async with harness.no_write():
        await harness.call(harness.load_balancers.ensure, asked, [node_of(m) for m in machines])


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_reaches_the_cloud_and_back(harness: Harness, change: str) -> None:
    machines = list(await harness.machines(1))
    for asked in (service(), service(**CHANGES[change]), service()):
        await harness.ensure(asked, machines)
        await check_converged(harness, asked, machines)


async def test_other_backends_reach_the_cloud(harness: Harness) -> None:
    machines = list(await harness.machines(3))
    for backends in (machines[:2], machines[1:], machines, []):
        await harness.ensure(service(), backends)
        await check_converged(harness, service(), backends)


@pytest.mark.parametrize("feature", FEATURES)
async def test_a_feature_is_had_from_the_start(harness: Harness, feature: Feature) -> None:
    asked = service_with(harness, feature)
    machines = list(await harness.machines(1))
    await harness.ensure(asked, machines)
    await check_converged(harness, asked, machines)


@pytest.mark.parametrize("feature", FEATURES)
async def test_a_change_of_a_feature_reaches_the_cloud_or_is_refused(
    harness: Harness, feature: Feature
) -> None:
    changed = service_with(harness, feature)
    machines = list(await harness.machines(1))
    await harness.ensure(service(), machines)
    try:
        await harness.ensure(changed, machines)
    except Refused:
        assert feature not in ALWAYS_CHANGEABLE
        await harness.check_balancer(service(), machines)
        return
    await check_converged(harness, changed, machines)
    await harness.ensure(service(), machines)
    await check_converged(harness, service(), machines)


async def test_source_ranges_of_the_annotation_count_as_well(harness: Harness) -> None:
    service_with(harness, Feature.SOURCE_RANGES)
    machines = list(await harness.machines(1))
    asked = service("web", {SOURCE_RANGES: ", ".join(NETWORKS)})
    await harness.ensure(asked, machines)
    await harness.ensure(service(loadBalancerSourceRanges=NETWORKS[:1]), machines)


async def test_source_ranges_that_are_no_networks_are_refused(harness: Harness) -> None:
    service_with(harness, Feature.SOURCE_RANGES)
    await harness.ensure(service(), [])
    asked = service(loadBalancerSourceRanges=["everybody"])
    async with harness.no_write():
        with pytest.raises(Refused):
            await harness.call(harness.load_balancers.ensure, asked, [])


async def test_a_requested_ip_is_had(harness: Harness) -> None:
    service_with(harness, Feature.FIXED_IP)
    ip = await invoke(harness.adapter.free_ip)
    asked = service(loadBalancerIP=ip)
    made = await harness.until_done(harness.load_balancers.ensure, asked, [])
    assert ip in [way.ip for way in made.ingress]
    async with harness.no_write():
        assert await harness.call(harness.load_balancers.ensure, asked, []) == made


async def test_annotations_reach_the_cloud_or_are_refused(harness: Harness) -> None:
    """Or a warning says that they have no effect on a balancer that is there."""
    for annotations in harness.adapter.annotation_sets():
        await harness.reset()
        await harness.ensure(service(), [])
        before = await invoke(harness.adapter.snapshot)
        changed = service("web", annotations)
        try:
            made = await harness.until_done(harness.load_balancers.ensure, changed, [])
            is_reported = bool(made.warnings)
        except Refused:
            assert await invoke(harness.adapter.snapshot) == before
            is_reported = True
        if is_reported and await invoke(harness.adapter.snapshot) == before:
            changed = service("other", annotations)
            await harness.until_done(harness.load_balancers.ensure, changed, [])
        assert await invoke(harness.adapter.snapshot) != before, f"{annotations} were ignored"
        async with harness.no_write():
            await harness.call(harness.load_balancers.ensure, changed, [])


def service_with(harness: Harness, feature: Feature) -> Service:
    """A Service that asks for the feature."""
    if feature not in harness.load_balancers.supported_features:
        raise Untestable(f"the provider does not honour {feature.value}")
    return service(**FEATURES.get(feature, {}))
