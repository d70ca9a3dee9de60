"""The parts of load balancers in the API: one read of all, and each write."""

import logging
import shlex
from collections.abc import Mapping
from typing import TypeVar

from ccm.cloud.json_api import verify_about
from ccm.cloud.lookup import together
from ccm.errors import Conflict, Denied, NotFound, Refused, RetryAfter
from ccm.model.objects import Json, text
from ccm.providers.gce.api import RACE_RETRY, GceApi, InUse
from ccm.providers.gce.config import Place
from ccm.providers.gce.ids import last_part
from ccm.providers.gce.lb.addresses import is_reserved, is_used, may_stay
from ccm.providers.gce.lb.design import changes, merged
from ccm.providers.gce.lb.observed import ADDRESS, FIREWALL, KINDS, Kind, Work
from ccm.providers.gce.lb.request import BalancerRequest

log = logging.getLogger(__name__)

T = TypeVar("T")


class Parts:
    """Reads and writes parts; what is gone already is deleted with success."""

    def __init__(self, api: GceApi) -> None:
        self._api = api

    async def read(self) -> Mapping[Kind, Mapping[str, Json]]:
        """One list a kind, all under way together."""
        place = await self._api.place()
        reads = (self._api.list(f"{kind.methods}.list", self._path(place, kind)) for kind in KINDS)
        lists = await together(*reads)
        return {
            kind: {text(item.get("name")): item for item in listed}
            for kind, listed in zip(KINDS, lists, strict=True)
        }

    async def get(self, place: Place, kind: Kind, name: str) -> Json:
        method = f"{kind.methods}.get"
        found = await self._api.get(method, self._path(place, kind, name))
        verify_about(method, found, "name", name)
        return found

    async def ensure(
        self, place: Place, kind: Kind, desired: Json, record: Json | None, warnings: list[str]
    ) -> None:
        """Make a part, or what is different in it.

        In a shared VPC the host project may not let us change firewalls: then an Event has the
        command for its administrator, as upstream's does, and the rest goes on.
        """
        differing = changes(desired, record) if record else desired
        if not differing:
            return
        name = desired["name"]
        try:
            if record is None:
                await self.create(place, kind, merged({}, desired))
            else:
                body = merged(record, desired)
                if kind.update == "PATCH":
                    body = {**differing, "fingerprint": record.get("fingerprint")}
                verb = "update" if kind.update == "PUT" else "patch"
                path = self._path(place, kind, name)
                await self._api.change(f"{kind.methods}.{verb}", kind.update, path, body)
        except Denied as denied:
            if kind is not FIREWALL or not place.is_shared_vpc:
                raise
            warnings.append(f"{denied}: run {firewall_command(desired, record is None, place)}")

    async def create(self, place: Place, kind: Kind, body: Json) -> None:
        """Raises `RetryAfter` for what someone else has made meanwhile."""
        try:
            await self._api.change(f"{kind.methods}.insert", "POST", self._path(place, kind), body)
        except Conflict as conflict:
            raise RetryAfter(str(conflict), RACE_RETRY) from conflict

    async def delete(self, place: Place, kind: Kind, name: str) -> bool:
        """Whether it is gone now; a part that others use is not."""
        path = self._path(place, kind, name)
        try:
            await self._api.change(f"{kind.methods}.delete", "DELETE", path)
        except NotFound:
            return True
        except InUse:
            return False
        except Denied as denied:
            if kind is not FIREWALL or not place.is_shared_vpc:
                raise
            command = f"gcloud compute firewall-rules delete {name}"
            extra = {"why": str(denied), "run": f"{command} --project={place.network_project}"}
            log.warning("a firewall of the shared VPC is left behind", extra=extra)
        return True

    async def call(self, place: Place, kind: Kind, name: str, verb: str, body: Json) -> None:
        """A method of its own, such as `addInstance`."""
        path = f"{self._path(place, kind, name)}/{verb}"
        await self._api.change(f"{kind.methods}.{verb}", "POST", path, body)

    def _path(self, place: Place, kind: Kind, name: str = "") -> str:
        if kind.scope == "region":
            return place.regional(kind.collection, name)
        project = place.network_project if kind.scope == "network" else place.project
        return f"projects/{project}/global/{kind.collection}/{name}".rstrip("/")


class HeldAddresses:
    """Reservations under the names of load balancers, for as long as these have no rule."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def kept(
        self, work: Work, request: BalancerRequest, tier: str
    ) -> tuple[Json | None, Json | None]:
        """The rule and the held address, without those whose address cannot stay.

        The rule goes once another address is held, and nothing is open to its own.
        """
        rule, address = work.rule, work.own(ADDRESS)
        if rule and not may_stay(request, rule, tier):
            rule = None
        if address and not may_stay(request, address, tier):
            await self._release(work)
            address = None
        return rule, address

    async def hold(self, work: Work, address: Json | None, desired: Json) -> Json | None:
        """The address, held before anything is opened to it; None if it is someone's reservation.

        Raises `Refused` for one that is in use: the address of a machine can be reserved as well.
        """
        place, name, ip = work.place, work.names.balancer, text(desired.get("address"))
        if address and text(address.get("address")) != ip:
            await self._release(work)
            address = None
        if not address and not is_reserved(work.observed, work.names, ip):
            await self._parts.create(place, ADDRESS, desired)
            address = await self._parts.get(place, ADDRESS, name)
        if address and is_used(address, name):
            await self._release(work)
            raise Refused(f"address {ip} is in use by {text(address['users'][0])}")
        return address

    async def _release(self, work: Work) -> None:
        """Give up the held address; unless the rule has it, close before what is open to it.

        Google may give it to the next machine. Raises `RetryAfter` where what was read is old.
        """
        rule, held = work.rule or {}, work.own(ADDRESS) or {}
        found = [name for name in work.names.own_firewalls if work.observed.get(FIREWALL, name)]
        if rule and held.get("address") in (None, rule.get("IPAddress")):
            found = []
        for name in found:
            await self._parts.delete(work.place, FIREWALL, name)
        await self._parts.delete(work.place, ADDRESS, work.names.balancer)
        if found:
            raise RetryAfter("the address that was held is given up", 0.0)


def firewall_command(desired: Json, is_new: bool, place: Place) -> str:
    """The gcloud command that makes a firewall so, for an administrator of the host project."""
    (allowed,) = desired["allowed"]
    protocol = allowed["IPProtocol"]
    flags = {
        "description": desired["description"],
        "allow": ",".join(f"{protocol}:{port}" for port in allowed["ports"]),
        "source-ranges": ",".join(desired["sourceRanges"]),
        "destination-ranges": ",".join(desired["destinationRanges"]),
        "target-tags": ",".join(desired["targetTags"]),
        "project": place.network_project,
    }
    verb = "update"
    if is_new:
        verb, flags = "create", {"network": last_part(place.network), **flags}
    given = [f"--{key}={value}" for key, value in flags.items() if value]
    return shlex.join(["gcloud", "compute", "firewall-rules", verb, desired["name"], *given])
