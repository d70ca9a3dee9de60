"""The Lease as it is: who holds it, who wrote it, and whether that one is alive."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from ccm.checks.finding import NotChecked
from ccm.checks.look.api import PATIENCE
from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.model.objects import Json, mapping, objects, text


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """What it says; `age` are seconds since the last renewal, by the API server's clock.

    `writer` is the program that renewed it, as the API server noted it, where it did.
    """

    name: str
    holder: str = ""
    writer: str = ""
    renewed: str = ""
    duration: float = 0.0
    age: float = 0.0
    is_alive: bool = False


async def look_at_lease(
    kube: Kube, path: str, server_now: Callable[[], float], patience: float
) -> LeaseSeen | None:
    """The Lease; None when there is none.

    One that looks as if it had run out is looked at again: its holder's clock may just be wrong.
    """
    seen = await _read(kube, path, server_now)
    if seen is None or not seen.holder or seen.is_alive:
        return seen
    await asyncio.sleep(min(patience, seen.duration))
    again = await _read(kube, path, server_now)
    if again and again.holder and again.renewed != seen.renewed:
        return replace(again, is_alive=True)
    return again


async def _read(kube: Kube, path: str, server_now: Callable[[], float]) -> LeaseSeen | None:
    try:
        return lease_in(await kube.request("GET", path, timeout=PATIENCE), server_now())
    except KubernetesError as error:
        if error.status == 404:
            return None
        if error.status == 403:
            raise NotChecked("this identity may not read the Lease") from error
        raise


def lease_in(raw: Json, now: float) -> LeaseSeen:
    """What the object says."""
    spec, meta = mapping(raw.get("spec")), mapping(raw.get("metadata"))
    holder, renewed = text(spec.get("holderIdentity")), text(spec.get("renewTime"))
    seconds = spec.get("leaseDurationSeconds")
    duration = float(seconds) if isinstance(seconds, int) else 0.0
    age = now - timestamp(renewed) if renewed else duration + 1
    return LeaseSeen(
        name=text(meta.get("name")),
        holder=holder,
        writer=max(_writers(meta.get("managedFields")), default=("", ""))[1],
        renewed=renewed,
        duration=duration,
        age=age,
        is_alive=bool(holder) and age <= duration,
    )


def _writers(managed: object) -> Iterator[tuple[str, str]]:
    """When, and which program wrote the time of the renewal."""
    for entry in objects(managed):
        fields = mapping(mapping(entry.get("fieldsV1")).get("f:spec"))
        if "f:renewTime" in fields:
            yield text(entry.get("time")), text(entry.get("manager"))


def timestamp(written: str) -> float:
    """A time as Kubernetes writes it, in seconds; 0 when it is none."""
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return 0.0
