"""What tests with all controllers share: the flags, a Service, and when all has been done."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.proc.running import Json, Supervisor

ALL = ("--controllers=*", "--cluster-cidr=10.240.0.0/12", "--cloud-rate=write=200")


def service(number: int) -> Json:
    """Service web-<number>, which wants a balancer."""
    port = {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"web-{number}", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [port]},
    }


def settled(supervisor: Supervisor) -> int:
    """Reconciles that came to an end, of workers that have nothing left to do."""
    workers = supervisor.workers().values()
    if any(worker.get("pending", 1) or worker["queue"]["ready"] for worker in workers):
        return 0
    return sum(int(worker["done"]) for worker in workers)


async def until_so(what: str, look: Callable[[], Any], seconds: float = 60.0) -> None:
    """Until the awaited `look` is truthy."""
    try:
        async with asyncio.timeout(seconds):
            while not await look():  # noqa: ASYNC110 - servers are asked
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None
