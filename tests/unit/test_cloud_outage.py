"""When all reads of the cloud fail for long: what a worker and what the supervisor report."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud.gate import WorkerGate
from ccm.errors import CloudError, Denied, Refused, RetryAfter
from ccm.model.status import CloudOutage
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.outages import CloudOutages

from .test_cloud_gate import called, raising


@pytest.mark.virtual_time
async def test_reads_that_all_fail_for_a_minute_are_an_outage_until_one_is_answered(
    gate: WorkerGate,
) -> None:
    """CT10."""

    async def read(error: Exception) -> CloudOutage:
        with suppress(CloudError):
            await called(gate, raising(error), is_blocking=False)
        return gate.outage()

    for _ in range(5):
        assert await read(Denied("the token is revoked")) == {}
        await asyncio.sleep(13.0)
    assert await read(Denied("the token is revoked")) == {
        "seconds": 65,
        "why": "the token is revoked",
    }
    with suppress(CloudError):
        await called(gate, raising(Refused("no")), is_blocking=False, is_write=True)
    assert gate.outage()
    assert await read(Refused("there is none")) == {}
    for _ in range(5):
        await read(RetryAfter("at work", 1.0))
        await asyncio.sleep(30.0)
    assert gate.outage() == {}
    for expected in ({}, {}, {"seconds": 122, "why": "no answer"}):
        assert await read(CloudError("no answer")) == expected
        await asyncio.sleep(61.0)


def test_an_outage_is_reported_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    handle: Any = SimpleNamespace(pid=1)
    processes = [WorkerProcess(name, handle, Path("hand"), ()) for name in "ab"]
    children = [Child(it.ident, it.ident, current=it) for it in processes]
    warned: list[tuple[str, str]] = []
    outages = CloudOutages(children, lambda *event: warned.append(event))
    for why in ("", "denied", "denied", "", ""):
        for process in processes:
            process.report = {"cloud_outage": {"seconds": 60, "why": why} if why else {}}
        outages.check()
    message = "Every read of the cloud has failed for 1m: denied."
    assert warned == [("CloudUnavailable", message)]
    assert caplog.messages == ["cloud unavailable", "cloud available again"]
