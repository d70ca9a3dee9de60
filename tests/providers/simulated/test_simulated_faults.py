"""Whatever goes wrong in the cloud, no Node of a healthy machine is ever called gone."""

import pytest

from ccm.errors import CloudError, Denied, Throttled
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import SimulatedConfig
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.simulation import CallRate

from .doubles import CountingGate, node, nodes

FAILURES = [
    (CloudFault(CloudFaultKind.ERROR), CloudError),
    (CloudFault(CloudFaultKind.ERROR, status=503), CloudError),
    (CloudFault(CloudFaultKind.DENIED), Denied),
    (CloudFault(CloudFaultKind.DENIED, status=401), Denied),
    (CloudFault(CloudFaultKind.THROTTLE), Throttled),
    (CloudFault(CloudFaultKind.TIMEOUT), CloudError),
    (CloudFault(CloudFaultKind.RESET), CloudError),
    (CloudFault(CloudFaultKind.GARBAGE), CloudError),
    (CloudFault(CloudFaultKind.GARBAGE, body="[]"), CloudError),
    (CloudFault(CloudFaultKind.GARBAGE, body='{"items": {}, "not_found": []}'), CloudError),
    (CloudFault(CloudFaultKind.GARBAGE, body='{"items": []}'), CloudError),
    (
        CloudFault(
            CloudFaultKind.GARBAGE,
            body='{"items": [], "not_found": ["node-0"], "next_page_token": 7}',
        ),
        CloudError,
    ),
]


@pytest.fixture
def hasty(cloud: CloudServer, gate: CountingGate) -> SimulatedApi:
    return SimulatedApi(SimulatedConfig(cloud.url, cloud.tokens.full, timeout=0.2), gate, "test")


@pytest.mark.parametrize(("fault", "error"), FAILURES)
async def test_a_failing_cloud_raises_what_the_caller_can_act_on(
    cloud: CloudServer, hasty: SimulatedApi, fault: CloudFault, error: type[CloudError]
) -> None:
    cloud.state.add_machines(1)
    cloud.faults.set(fault)
    with pytest.raises(CloudError) as raised:
        await SimulatedInstances(hasty, 100).describe(nodes(1))
    assert type(raised.value) is error
    assert "ListMachines" in str(raised.value)
    assert cloud.counters.reads == 1
    await hasty.close()


@pytest.mark.parametrize("kind", [CloudFaultKind.PARTIAL, CloudFaultKind.EMPTY])
async def test_machines_left_out_without_a_word_are_unknown(
    cloud: CloudServer, instances: SimulatedInstances, kind: CloudFaultKind
) -> None:
    cloud.state.add_machines(10)
    cloud.faults.set(CloudFault(kind, share=0.5))
    answers = await instances.describe([*nodes(10), node("nobody")])
    found = [name for name, answer in answers.items() if isinstance(answer, Instance)]
    assert len(found) == (5 if kind is CloudFaultKind.PARTIAL else 0)
    healthy = {name: answer for name, answer in answers.items() if name != "nobody"}
    assert not any(isinstance(answer, Gone) for answer in healthy.values())
    assert sum(isinstance(answer, Unknown) for answer in healthy.values()) == 10 - len(found)


async def test_a_late_answer_is_an_answer(
    cloud: CloudServer, instances: SimulatedInstances
) -> None:
    cloud.state.add_machines(1)
    cloud.faults.set(CloudFault(CloudFaultKind.SLOW, delay=0.05))
    assert isinstance((await instances.describe(nodes(1)))["node-0"], Instance)


async def test_a_stale_cloud_is_believed_which_is_why_deletions_are_confirmed(
    cloud: CloudServer, instances: SimulatedInstances
) -> None:
    cloud.faults.set(CloudFault(CloudFaultKind.STALE))
    cloud.state.add_machines(1)
    assert isinstance((await instances.describe(nodes(1)))["node-0"], Gone)


async def test_a_lying_cloud_is_believed_which_is_why_deletions_have_a_budget(
    cloud: CloudServer, instances: SimulatedInstances
) -> None:
    cloud.state.add_machines(10)
    cloud.faults.set(CloudFault(CloudFaultKind.ABSENT))
    answers = await instances.describe(nodes(10))
    assert all(isinstance(answer, Gone) for answer in answers.values())


async def test_the_clouds_own_rate_limit_reaches_the_gate(
    cloud: CloudServer, instances: SimulatedInstances, gate: CountingGate
) -> None:
    cloud.limits.set("read", CallRate(per_second=0.1, burst=1))
    await instances.describe(nodes(1))
    with pytest.raises(Throttled):
        await instances.describe(nodes(1))
    [error] = gate.errors
    assert isinstance(error, Throttled)
    assert error.seconds == 10


async def test_a_broken_connection_is_not_tried_again_behind_the_gates_back(
    cloud: CloudServer, instances: SimulatedInstances, gate: CountingGate
) -> None:
    cloud.state.add_machines(1)
    await instances.describe(nodes(1))
    cloud.faults.set(CloudFault(CloudFaultKind.RESET, remaining=1))
    with pytest.raises(CloudError):
        await instances.describe(nodes(1))
    assert cloud.counters.reads == gate.calls["ListMachines", "read"] == 2
    assert isinstance((await instances.describe(nodes(1)))["node-0"], Instance)


async def test_a_cloud_that_is_not_there_is_an_error(gate: CountingGate) -> None:
    async with CloudServer() as cloud:
        url = cloud.url
    api = SimulatedApi(SimulatedConfig(url, "sandbox"), gate, "test")
    with pytest.raises(CloudError, match="ListMachines: ConnectionRefusedError"):
        await SimulatedInstances(api, 100).describe(nodes(1))
    await api.close()
