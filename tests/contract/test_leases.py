"""What leader election relies on."""

import asyncio

import pytest

from tests.contract.client import LEASES, Api


@pytest.mark.parametrize("field", ["acquireTime", "renewTime"])
@pytest.mark.parametrize(
    "moment",
    ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123Z", "2026-01-02T03:04:05.1234567Z", "now"],
)
async def test_times_need_six_digits(api: Api, field: str, moment: str) -> None:
    body = {"metadata": {"name": api.new_name()}, "spec": {field: moment}}
    assert (await api.create(LEASES, body)).refusal == (400, "BadRequest")


async def test_a_patch_to_a_wrong_time_is_422(api: Api) -> None:
    lease = await api.new(LEASES)
    body = {"spec": {"renewTime": "2026-01-02T03:04:05Z"}}
    for reply in (await api.merge(lease.path, body), await api.strategic(lease.path, body)):
        assert reply.causes == {"patch Invalid"}


@pytest.mark.parametrize(
    ("field", "value"), [("leaseDurationSeconds", 0), ("leaseTransitions", -1)]
)
async def test_bad_numbers_are_422(api: Api, field: str, value: int) -> None:
    body = {"metadata": {"name": api.new_name()}, "spec": {field: value}}
    assert (await api.create(LEASES, body)).causes == {f"spec.{field} Invalid"}


async def test_a_lease_is_released_by_an_empty_holder(api: Api) -> None:
    lease = await api.new(LEASES, spec={"holderIdentity": "a"})
    reply = await api.merge(lease.path, {"spec": {"holderIdentity": ""}})
    assert reply.status == 200
    assert reply.body["spec"] == {"holderIdentity": ""}


async def test_of_many_that_create_a_lease_one_succeeds(api: Api) -> None:
    name = api.new_name()

    async def take(holder: int) -> int:
        body = {"metadata": {"name": name}, "spec": {"holderIdentity": f"{holder}"}}
        return (await api.create(LEASES, body)).status

    statuses = await asyncio.gather(*(take(holder) for holder in range(8)))
    assert sorted(statuses) == [201] + [409] * 7


async def test_of_many_that_update_one_version_one_succeeds(api: Api) -> None:
    lease = await api.new(LEASES, spec={"holderIdentity": "nobody"})

    async def take(holder: int) -> int:
        body = {**lease.body, "spec": {"holderIdentity": f"{holder}"}}
        return (await api.replace(lease.path, body)).status

    statuses = await asyncio.gather(*(take(holder) for holder in range(8)))
    assert sorted(statuses) == [200] + [409] * 7


async def test_a_refused_lease_is_named_with_its_group(api: Api) -> None:
    reply = await api.get(f"{LEASES}/{api.new_name()}")
    assert reply.refusal == (404, "NotFound")
    assert reply.body["details"]["group"] == "coordination.k8s.io"
    assert reply.body["details"]["kind"] == "leases"
