"""Whatever goes wrong in the cloud, no Node of a healthy machine is ever called gone."""

from collections.abc import Awaitable, Callable

import pytest

from ccm.cloud.testkit.gate import GateCall
from ccm.errors import CloudError, Denied
from ccm.model.cloud import Instance
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.instances import SimulatedInstances
from ccm.providers.simulated.routes import SimulatedRoutes
from ccm.providers.simulated.volumes import SimulatedVolumes
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.server import CloudServer

from .world import World, nodes, volumes

NO_LIST: object = {"items": {}, "not_found": []}
ODD_TOKEN: object = {"items": [], "not_found": ["node-0"], "next_page_token": 7}
CIRCLE: object = {"items": [], "not_found": [], "next_page_token": "again"}
FAILURES: list[tuple[CloudFault | object, type[CloudError]]] = [
    (CloudFault(CloudFaultKind.ERROR, status=503), CloudError),
    (CloudFault(CloudFaultKind.DENIED, status=401), Denied),
    (CloudFault(CloudFaultKind.RESET), CloudError),
    ([], CloudError),
    (NO_LIST, CloudError),
    (ODD_TOKEN, CloudError),
    (CIRCLE, CloudError),
]
READS: dict[str, Callable[[SimulatedApi], Awaitable[object]]] = {
    "ListMachines": lambda api: SimulatedInstances(api, 100).describe(nodes(150)),
    "ListVolumes": lambda api: SimulatedVolumes(api, 100).describe(volumes(150)),
    "ListRoutes": lambda api: SimulatedRoutes(api, "test").list(nodes(1)),
}
LOOKUPS = ("ListMachines", "ListVolumes")


@pytest.mark.parametrize(
    ("operation", "fault", "error"),
    [
        *((operation, *failure) for operation in READS for failure in FAILURES),
        *((operation, {"items": []}, CloudError) for operation in LOOKUPS),
    ],
)
async def test_a_failing_cloud_raises_what_the_caller_can_act_on_and_is_asked_once(
    w: World, operation: str, fault: CloudFault | object, error: type[CloudError]
) -> None:
    if isinstance(fault, CloudFault):
        w.cloud.faults.set(fault)
    else:
        w.answer_with(fault)
    with pytest.raises(CloudError, match=operation) as raised:
        await READS[operation](w.api)
    assert type(raised.value) is error
    calls = {"ListRoutes": 1}.get(operation, 2) * (2 if fault is CIRCLE else 1)
    assert w.cloud.counters.reads == w.gate.calls.count(GateCall(operation, "read")) == calls


async def test_a_broken_connection_is_not_tried_again_behind_the_gates_back(w: World) -> None:
    w.cloud.state.add_machines(1)
    await w.instances.describe(nodes(1))
    w.cloud.faults.set(CloudFault(CloudFaultKind.RESET, remaining=1))
    with pytest.raises(CloudError):
        await w.instances.describe(nodes(1))
    assert w.cloud.counters.reads == w.gate.calls.count(GateCall("ListMachines", "read")) == 2
    assert isinstance((await w.instances.describe(nodes(1)))["node-0"], Instance)


async def test_a_cloud_that_is_not_there_is_an_error(w: World) -> None:
    async with CloudServer() as cloud:
        url = cloud.url
    api = w.client(url=url)
    with pytest.raises(CloudError, match="ListMachines: ConnectionRefusedError"):
        await SimulatedInstances(api, 100).describe(nodes(1))
