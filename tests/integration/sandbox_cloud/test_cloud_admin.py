"""The admin client against the service: what a person does from the command line."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from ccm.cli.sandbox import sandbox
from ccm.errors import ExitCode, Refused
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.cloud.simulation import CallRate

from .conftest import Cloud


async def test_a_wrong_wish_is_refused_in_a_sentence(admin: CloudAdmin) -> None:
    with pytest.raises(Refused, match="machine nobody does not exist"):
        await admin.stop("nobody")
    await admin.add([Machine("twin", id="m-1"), Machine("twin", id="m-2")])
    with pytest.raises(Refused, match="use an id: m-1, m-2"):
        await admin.stop("twin")
    with pytest.raises(Refused, match="exists"):
        await admin.add([Machine("third", id="m-1")])
    with pytest.raises(Refused, match="'fly' cannot be done"):
        await admin._act("m-1", "fly")


async def test_faults_are_set_listed_and_cleared(admin: CloudAdmin, cloud: Cloud) -> None:
    fault = await admin.set_fault(CloudFault(CloudFaultKind.ERROR, operation="ListMachines"))
    denied = CloudFault(CloudFaultKind.DENIED, "ListRoutes", remaining=5, share=0.25, delay=1.5)
    assert await admin.set_fault(denied) == replace(denied, id="fault-2")
    assert (await cloud.get("/v1/machines")).status == 500
    assert [(f.id, f.hits) for f in await admin.faults()] == [("fault-1", 1), ("fault-2", 0)]
    await admin.clear_faults(fault.id)
    assert (await cloud.get("/v1/machines")).status == 200
    await admin.clear_faults()
    assert await admin.faults() == []
    with pytest.raises(Refused, match="fault fault-1 does not exist"):
        await admin.clear_faults("fault-1")


def test_an_unknown_kind_of_fault_is_a_usage_error_of_the_command() -> None:
    result = CliRunner().invoke(sandbox, ["fault", "set", "meteor"])
    assert result.exit_code == ExitCode.USAGE
    assert "must be one of error, denied" in result.output


async def test_rates_and_conditions_change_while_it_runs(cloud: Cloud, admin: CloudAdmin) -> None:
    limits = await admin.set_limits(read=CallRate(per_second=2.5, burst=7))
    assert limits["read"] == {"per_second": 2.5, "burst": 7}
    assert limits["write"] is None
    limits = await admin.set_limits(page=7, latency=0.001, max_routes=3)
    assert (limits["page"], limits["latency"], limits["max_routes"]) == (7, 0.001, 3)
    assert limits["read"] == {"per_second": 2.5, "burst": 7}
    assert (await admin.set_limits(read=None))["read"] is None
