"""Finds the load balancer of a Service: by ID where one is known, by name, by tag or address."""

from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, NotFound, Refused
from ccm.http import path_of
from ccm.model.cloud import UUID
from ccm.model.objects import Json, mapping, text
from ccm.providers.digitalocean.api import BALANCER_PAGE, DigitalOceanApi, Listed
from ccm.providers.digitalocean.lb.names import Names

ROOT = "/load_balancers"


class BalancerSearch:
    """Remembers IDs by the UIDs of Services: a look costs a call then."""

    def __init__(self, api: DigitalOceanApi) -> None:
        self._api, self._list = api, SharedRead(self._read_all)
        self._ids: dict[str, str] = {}

    def remember(self, service_uid: str, balancer_id: str) -> None:
        """That it was made for the Service."""
        self._ids[service_uid] = balancer_id

    def forget(self, service_uid: str) -> None:
        """It is gone."""
        self._ids.pop(service_uid, None)

    async def find(
        self, names: Names, is_needed: bool = False, may_be_claimed: bool = True
    ) -> Json | None:
        """The record of the Service's own; None when there is none.

        If it `is_needed`, raises `Refused` for what has its name, or its annotation names, and is
        not its own; unless it `may_be_claimed`, its name alone counts for that.
        """
        remembered = self._ids.get(names.service.uid)
        for known_id in dict.fromkeys((remembered, names.annotated_id)):
            found = await self._by_id(names, known_id) if known_id else None
            if found and (names.is_proven(found) or known_id == remembered):
                return found
        found = names.choose((await self._called(names)).records)
        if found is None:
            records = (await self.complete_list()).records
            found = names.choose_of_all(records)
            if found is None and is_needed:
                _check_free(names, records, may_be_claimed)
        if found:
            self.remember(names.service.uid, text(found.get("id")))
        return found

    async def complete_list(self) -> Listed:
        """All of them, never a part."""
        listed = await self._list()
        listed.verify_complete()
        return listed

    async def _by_id(self, names: Names, balancer_id: str) -> Json | None:
        if not UUID.fullmatch(balancer_id):
            return None
        try:
            answer = await self._api.get("GetLoadBalancer", ROOT + path_of(balancer_id))
        except NotFound:
            self.forget(names.service.uid)
            return None
        found = dict(mapping(answer.get("load_balancer")))
        if found.get("id") != balancer_id:
            raise CloudError(f"GetLoadBalancer: the answer is not about {balancer_id}")
        return found if names.is_proven(found) or names.is_upstreams(found) else None

    async def _read_all(self) -> Listed:
        return await self._api.list("ListLoadBalancers", ROOT, "load_balancers", BALANCER_PAGE)

    async def _called(self, names: Names) -> Listed:
        """Those of the Service's names, among others where the API does not heed that."""
        called = sorted({names.default, names.wanted})
        return await self._api.list(
            "ListLoadBalancers", ROOT, "load_balancers", BALANCER_PAGE, names=called
        )


def _check_free(names: Names, records: list[Json], may_be_claimed: bool) -> None:
    for record in records:
        name, balancer_id = text(record.get("name")), text(record.get("id"))
        is_claimed = may_be_claimed and balancer_id == names.annotated_id
        if is_claimed or name == names.default:
            raise Refused(
                f"load balancer {name} ({balancer_id}) is not known to be this Service's: to "
                f"give it to the Service, rename it to {names.default}"
            )
