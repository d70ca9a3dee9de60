"""The provider as the controllers hold it."""

import pytest

from ccm.cloud.interface import CloudProvider, Quota
from ccm.errors import ConfigurationFaults
from ccm.model.cloud import Instance
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.providers.simulated.provider import SimulatedCloud
from ccm.sandbox.cloud.server import CloudServer

from .doubles import CountingGate, context, nodes


async def test_it_is_a_cloud_provider_from_start_to_close(
    cloud: CloudServer, gate: CountingGate
) -> None:
    cloud.state.add_machines(30)
    provider: CloudProvider = SimulatedCloud()
    assert (provider.name, provider.scheme) == ("simulated", "simulated")
    config = f"[Global]\nurl={cloud.url}\ntoken={cloud.tokens.full}\npage-size=10\nread-rate=7\n"
    await provider.initialize(context(gate, config))
    assert cloud.counters.count() == 0
    assert provider.quotas["read"] == Quota(7, 14)
    assert isinstance(provider.instances, SimulatedInstances)
    assert provider.instances.batch_size == 10
    answers = await provider.instances.describe(nodes(30))
    assert all(isinstance(answer, Instance) for answer in answers.values())
    assert cloud.counters.reads == 3
    await provider.close()
    await provider.close()


async def test_a_wrong_configuration_stops_the_start(gate: CountingGate) -> None:
    provider = SimulatedCloud()
    with pytest.raises(ConfigurationFaults, match=r"cloud\.conf \[Global\] url"):
        await provider.initialize(context(gate, "[Global]\ntoken = t\n"))
    await provider.close()


async def test_every_call_names_a_class_that_has_a_quota(
    cloud: CloudServer, gate: CountingGate
) -> None:
    provider = SimulatedCloud()
    await provider.initialize(context(gate, f"[Global]\nurl={cloud.url}\ntoken=sandbox\n"))
    assert isinstance(provider.instances, SimulatedInstances)
    await provider.instances.describe(nodes(1))
    assert {budget for _, budget in gate.calls} <= provider.quotas.keys()
    await provider.close()
